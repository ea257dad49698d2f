// SPDX-License-Identifier: MIT
// Loads, stores, atomics, asynchronous copies. PTX ISA 9.0, sections 9.7.9.8 to 9.7.9.25 and 9.7.13.
#include <algorithm>

#include "core/memory.h"
#include "core/text.h"
#include "forms.h"
#include "half.h"
#include "reduce.h"

namespace emu::ptx {

namespace {

[[noreturn]] void misaligned(const char* space, int lane, u64 address, u32 align) {
    throw Fault(
        "misaligned",
        "lane " + std::to_string(lane) + ": the address " + hex(address) + " in " + space +
            " memory is not a multiple of " + std::to_string(align),
        716);
}

[[noreturn]] void outside(const char* space, int lane, u64 address, u32 bytes, const std::string& rest) {
    throw Fault(
        "bounds",
        "lane " + std::to_string(lane) + ": " + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes") + " at " +
            hex(address) + " outside of " + space + " memory" + rest,
        700);
}

[[noreturn]] void nowhere(int lane, u64 address, u32 bytes) {
    const Heap& heap = Heap::instance();
    const std::string near = heap.spans(address) ? heap.neighbourhood(address) : neighbourhood(address);
    outside("global", lane, address, bytes, ", " + near);
}

}  // namespace

SharedPlace shared_place(Warp& w, u64 address) {
    const u32 rank = static_cast<u32>(address >> kRankShift & 0xff);
    if (!rank) return {w.block, static_cast<u32>(address & ((1u << kRankShift) - 1))};
    if (rank <= w.block->cluster->blocks.size() && rank - 1 != w.block->rank && w.block->checks())
        w.block->checks()->remote(w, w.block->cluster->blocks[rank - 1]);
    if (rank > w.block->cluster->blocks.size())
        throw Fault(
            "bounds",
            "an address of the shared memory of block " + std::to_string(rank - 1) + " of a cluster of " +
                std::to_string(w.block->cluster->blocks.size()),
            700);
    return {&w.block->cluster->blocks[rank - 1], static_cast<u32>(address & ((1u << kRankShift) - 1))};
}

u8* shared_memory(Warp& w, int lane, u64 address, u32 bytes, u32 align) {
    address &= 0xffffffffu;
    if (address % align) misaligned("shared", lane, address, align);
    const SharedPlace place = shared_place(w, address);
    if (u64{place.offset} + bytes > w.block->launch->shared_bytes)
        outside(
            "shared", lane, address, bytes,
            ", of which the block has " + std::to_string(w.block->launch->shared_bytes));
    return place.block->shared + place.offset;
}

u8* global_memory(Warp& w, int lane, u64 address, u32 bytes, u32 align) {
    if (address % align) misaligned("global", lane, address, align);
    const Ranges::Range* const range = w.block->launch->memory->find(address, bytes, w.range);
    if (!range) nowhere(lane, address, bytes);
    w.range = range;
    return reinterpret_cast<u8*>(address);
}

u8* local_memory(Warp& w, int lane, u64 offset, u32 bytes, u32 align) {
    const u32 size = w.block->launch->program->local_bytes;
    if (offset % align) misaligned("local", lane, offset, align);
    if (offset + bytes > size) {
        if (!w.calls) outside("local", lane, offset, bytes, ", of which a thread has " + std::to_string(size));
        if (u8* const at = w.calls->find(lane, offset, bytes, size)) return at;
        outside(
            "local", lane, offset, bytes,
            ", of which the function that runs has " +
                std::to_string(
                    w.calls->frames[lane].empty() ? size : w.calls->frames[lane].back().top - w.calls->base(lane)) +
                " from " + hex(w.calls->base(lane)) + " on, and each that waits for it has its own");
    }
    return w.block->local + (u64{w.index} * kLanes + static_cast<u64>(lane)) * size + offset;
}

u8* generic_memory(Warp& w, int lane, u64 address, u32 bytes, u32 align) {
    switch (address & kWindow) {
        case kSharedWindow: return shared_memory(w, lane, address, bytes, align);
        case kLocalWindow: return local_memory(w, lane, address & ~kWindow, bytes, align);
        case kParamWindow: {
            const std::vector<u8>& all = w.block->launch->parameters;
            const u64 offset = address & ~kWindow;
            if (offset + bytes > all.size()) outside("parameter", lane, offset, bytes, "");
            return const_cast<u8*>(all.data()) + offset;
        }
        default: return global_memory(w, lane, address, bytes, align);
    }
}

void carry_out(Warp& w, const PendingCopy& copy) {
    u8* const target = w.block->shared + copy.target;
    std::memcpy(target, reinterpret_cast<const u8*>(copy.source), copy.read);
    std::memset(target + copy.read, 0, copy.bytes - copy.read);
}

void complete_copies(Warp& w, u32 mask, u32 kept) {
    std::erase_if(w.copies, [&](const PendingCopy& copy) {
        const bool due = (mask >> copy.lane & 1) && copy.group + kept < w.committed[copy.lane];
        if (due) carry_out(w, copy);
        return due;
    });
}

namespace {

Memory memory_of(const Builder& b) {
    if (b.has("shared") || b.has("shared::cta") || b.has("shared::cluster")) return shared_memory;
    if (b.has("local")) return local_memory;
    if (b.has("global")) return global_memory;
    if (b.has("const")) return global_memory;
    return generic_memory;
}

/// Parameters are memory of the launch in a kernel; those of device functions, and of calls, are variables of a frame.
Memory memory_of(const Builder& b, const Operand& address) {
    const bool parameter = b.has("param") || b.has("param::func") || b.has("param::entry");
    const bool own = address.parts.at(0).kind == Operand::Kind::Variable || b.routine();
    return parameter && own ? local_memory : memory_of(b);
}

/// The address of a lane: op.operand[1] holds 64-bit addresses, or 32-bit ones (op.extra's bit 8).
constexpr u32 kNarrow = 1u << 8;
constexpr u32 kUncounted = 1u << 12;
constexpr u32 kReturns = 1u << 9;  // of an atomic: its result is asked for
constexpr u32 kKindShift = 24;     // above: the access's Kind

struct LaneAddress {
    const u64* wide;
    const u32* narrow;
    u64 offset;
    LaneAddress(const Warp& w, const Op& op, int slot)
        : wide(w.lanes<u64>(op.operand[slot])), narrow(w.lanes<u32>(op.operand[slot])),
          offset(static_cast<u64>(op.immediate)) {
        if (op.extra & kNarrow) wide = nullptr;
    }
    u64 operator[](int lane) const { return (wide ? wide[lane] : narrow[lane]) + offset; }
};

/// A shared or local address may be in a register of 32 or of 64 bits.
void address_operand(Builder& b, size_t i, size_t slot, bool shared) {
    const Operand& base = b.operand(i).parts.at(0);
    bool narrow = shared;
    if (base.kind == Operand::Kind::Register) narrow = b.function().registers[base.reg].bytes == 4;
    if (narrow && !shared && !b.has("local")) throw SourceError("an address of 32 bits where one of 64 is needed");
    b.address(b.operand(i), slot, narrow ? 4 : 8);
    if (narrow) b.op.extra |= kNarrow;
}

/// Counts an access. Constants come from a cache of their own, and what calls hand over is in registers.
template <Memory kMemory>
void add_up(const Warp& w, const Op& op, const LaneAddress& address, u32 bytes, bool serial = false) {
    Tally* const tally = w.block->cluster->tally;
    if (!tally || op.extra & kUncounted) return;
    u64 at[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) at[lane] = address[lane];
    constexpr Reach kReach = kMemory == shared_memory   ? Reach::Shared
                             : kMemory == global_memory ? Reach::Global
                             : kMemory == local_memory  ? Reach::Local
                                                        : Reach::Generic;
    tally->access(op.statement, kReach, at, w.mask, bytes, serial);
}

/// Lanes of a warp that access global memory one behind the other, told together.
class GlobalRun {
public:
    GlobalRun(Warp& w, Checks& checks, u8 kind) : w_(w), checks_(checks) {
        access_.writes = kind & kWrite, access_.strong = kind & kStrong;
    }
    void add(u64 begin, u64 end, size_t range) {
        if (begin == end_ && range == range_) {
            end_ = end;
            return;
        }
        flush();
        begin_ = begin, end_ = end, range_ = range;
    }
    void flush() {
        if (end_) checks_.global_touch(w_, w_.mask, begin_, end_, range_, access_);
        end_ = 0;
    }

private:
    Warp& w_;
    Checks& checks_;
    Checks::GlobalAccess access_;
    u64 begin_ = 0, end_ = 0;
    size_t range_ = 0;
};

/// Tells the checks of an access that has been found to be valid. `same`: lanes that write what is there already.
template <Memory kMemory>
void note(Warp& w, const LaneAddress& address, u32 bytes, u8 kind, u32 same = 0) {
    Checks* const checks = w.block->checks();
    if (kMemory == local_memory || !checks) return;
    const Ranges& memory = *w.block->launch->memory;
    if (kMemory != shared_memory && memory.heap() && !(kind & kWrite))
        each_lane(w.mask, [&](int lane) { checks->heap_read(w, lane, address[lane], bytes); });
    if (kMemory == global_memory && kind == kRead && !w.block->launch->before &&
        !checks->watches_reads(memory.number(w.range)))
        return;
    const bool watches = checks->watches_global();
    GlobalRun run(w, *checks, kind);
    u32 at[kLanes], shared = 0;
    each_lane(w.mask, [&](int lane) {
        const u64 where = address[lane];
        if (kMemory == shared_memory || (kMemory == generic_memory && (where & kWindow) == kSharedWindow)) {
            at[lane] = static_cast<u32>(where);
            shared |= 1u << lane;
        } else if (kMemory == global_memory || !(where & kWindow)) {
            w.range = memory.find(where, bytes, w.range);
            const size_t range = memory.number(w.range);
            if (kind & kWrite) checks->global_write(w, where, where + bytes, range);
            else if (w.block->launch->before && !(kind & kStrong)) checks->global_read(w, lane, where, where + bytes);
            if (watches) run.add(where, where + bytes, range);
        }
    });
    run.flush();
    if (shared) checks->touch(w, at, shared, bytes, kind, same);
    if (!(kind & kHands)) return;
    const u64 first = address[std::countr_zero(w.mask)];
    bool uniform = true;
    each_lane(w.mask, [&](int lane) { uniform &= address[lane] == first; });
    if (uniform) checks->strong(w, w.mask, first);
    else each_lane(w.mask, [&](int lane) { checks->strong(w, 1u << lane, address[lane]); });
    // What only writes learns nothing.
    if (!shared && (!(kind & kWrite) || w.op->extra & kReturns)) checks->acquired();
}

struct Element {
    u32 bytes = 4;
    bool is_signed = false;
    u32 count = 1;
};

Element element_of(const Builder& b) {
    Element result;
    result.bytes = static_cast<u32>(std::max(0, type_bytes(b.type())));
    result.is_signed = b.type()[0] == 's';
    result.count = b.has("v8") ? 8 : b.has("v4") ? 4 : b.has("v2") ? 2 : 1;
    return result;
}

template <Memory kMemory, u32 kBytes, bool kSigned, u32 kRegister>
Flow load(Warp& w, const Op& op) {
    using E = std::conditional_t<
        kBytes == 1, u8, std::conditional_t<kBytes == 2, u16, std::conditional_t<kBytes == 4, u32, u64>>>;
    using R = std::conditional_t<kRegister == 8, u64, u32>;
    const i32* const list = w.block->launch->program->lists.data() + op.list;
    const u32 count = op.count, bytes = kBytes * count;
    const LaneAddress address(w, op, 1);
    // Through a buffer: a result may be the address's own register.
    alignas(64) R values[8][kLanes];
    each_lane(w.mask, [&](int lane) {
        const u8* const from = kMemory(w, lane, address[lane], bytes, bytes);
        for (u32 i = 0; i < count; ++i) {
            E value;
            std::memcpy(&value, from + i * kBytes, kBytes);
            if constexpr (kSigned && kBytes < kRegister)
                values[i][lane] =
                    static_cast<R>(static_cast<std::make_signed_t<R>>(static_cast<std::make_signed_t<E>>(value)));
            else values[i][lane] = static_cast<R>(value);
        }
    });
    add_up<kMemory>(w, op, address, bytes);
    note<kMemory>(w, address, bytes, static_cast<u8>(op.extra >> kKindShift));
    for (u32 i = 0; i < count; ++i) {
        R* const to = reinterpret_cast<R*>(w.to(list[i]));
        if (w.mask == kAllLanes) std::memcpy(to, values[i], sizeof values[i]);
        else each_lane(w.mask, [&](int lane) { to[lane] = values[i][lane]; });
    }
    return Flow::Next;
}

template <Memory kMemory, u32 kBytes, u32 kRegister>
Flow store(Warp& w, const Op& op) {
    using E = std::conditional_t<
        kBytes == 1, u8, std::conditional_t<kBytes == 2, u16, std::conditional_t<kBytes == 4, u32, u64>>>;
    using R = std::conditional_t<kRegister == 8, u64, u32>;
    const Program& program = *w.block->launch->program;
    const u32 count = op.count, bytes = kBytes * count;
    const LaneAddress address(w, op, 1);
    const R* from[8] = {};
    for (u32 i = 0; i < count; ++i) from[i] = w.lanes<R>(program.lists[op.list + i]);
    u32 same = 0;
    const bool asked = (kMemory == shared_memory || kMemory == generic_memory) && w.block->checks();
    each_lane(w.mask, [&](int lane) {
        u8* const to = kMemory(w, lane, address[lane], bytes, bytes);
        bool changes = !asked;
        for (u32 i = 0; i < count; ++i) {
            const E value = static_cast<E>(from[i][lane]);
            changes = changes || std::memcmp(to + i * kBytes, &value, kBytes) != 0;
            std::memcpy(to + i * kBytes, &value, kBytes);
        }
        if (!changes) same |= 1u << lane;
    });
    add_up<kMemory>(w, op, address, bytes);
    note<kMemory>(w, address, bytes, static_cast<u8>(op.extra >> kKindShift), same);
    return Flow::Next;
}

template <Memory kMemory>
Handler load_handler(const Element& e, u32 register_bytes) {
    if (register_bytes == 8) {
        switch (e.bytes) {
            case 1: return e.is_signed ? load<kMemory, 1, true, 8> : load<kMemory, 1, false, 8>;
            case 2: return e.is_signed ? load<kMemory, 2, true, 8> : load<kMemory, 2, false, 8>;
            case 4: return e.is_signed ? load<kMemory, 4, true, 8> : load<kMemory, 4, false, 8>;
            case 8: return load<kMemory, 8, false, 8>;
            default: return nullptr;
        }
    }
    switch (e.bytes) {
        case 1: return e.is_signed ? load<kMemory, 1, true, 4> : load<kMemory, 1, false, 4>;
        case 2: return load<kMemory, 2, false, 4>;
        case 4: return load<kMemory, 4, false, 4>;
        default: return nullptr;
    }
}

template <Memory kMemory>
Handler store_handler(const Element& e, u32 register_bytes) {
    if (register_bytes == 8) {
        switch (e.bytes) {
            case 1: return store<kMemory, 1, 8>;
            case 2: return store<kMemory, 2, 8>;
            case 4: return store<kMemory, 4, 8>;
            case 8: return store<kMemory, 8, 8>;
            default: return nullptr;
        }
    }
    switch (e.bytes) {
        case 1: return store<kMemory, 1, 4>;
        case 2: return store<kMemory, 2, 4>;
        case 4: return store<kMemory, 4, 4>;
        default: return nullptr;
    }
}

/// Bytes of the registers that hold a list's elements: a register may be wider than the type.
u32 register_bytes(const Builder& b, const Operand& operand, u32 element) {
    const Operand& first = operand.kind == Operand::Kind::List ? operand.parts.at(0) : operand;
    if (first.kind == Operand::Kind::Register) return b.function().registers[first.reg].bytes;
    return element == 8 ? 8 : 4;
}

template <class Make>
Handler in_space(Memory memory, Make make) {
    if (memory == shared_memory) return make.template operator()<shared_memory>();
    if (memory == local_memory) return make.template operator()<local_memory>();
    if (memory == global_memory) return make.template operator()<global_memory>();
    return make.template operator()<generic_memory>();
}

/// Others may access the same memory at the same time. (.volatile is .relaxed.)
bool is_strong(const Builder& b) {
    return b.has("volatile") || b.has("relaxed") || b.has("acquire") || b.has("release") || b.has("mmio");
}

bool decode_ld(Builder& b) {
    const Element e = element_of(b);
    if (b.operands() < 2 || b.operand(1).kind != Operand::Kind::Address) return false;
    const u32 bytes = register_bytes(b, b.operand(0), e.bytes);
    const Memory memory = memory_of(b, b.operand(1));
    if (b.has("const") || (memory == local_memory && !b.has("local"))) b.op.extra |= kUncounted;
    address_operand(b, 1, 1, memory == shared_memory);
    b.op.run = in_space(memory, [&]<Memory kMemory>() { return load_handler<kMemory>(e, bytes); });
    b.op.extra |= (is_strong(b) ? u32{kRead | kStrong | kHands} : u32{kRead}) << kKindShift;
    b.list(b.operand(0), bytes, true);
    return b.op.run && b.op.count == e.count;
}

bool decode_st(Builder& b) {
    const Element e = element_of(b);
    if (b.operands() < 2 || b.operand(0).kind != Operand::Kind::Address || b.has("async")) return false;
    const u32 bytes = register_bytes(b, b.operand(1), e.bytes);
    const Memory memory = memory_of(b, b.operand(0));
    if (memory == local_memory && !b.has("local")) b.op.extra |= kUncounted;
    address_operand(b, 0, 1, memory == shared_memory);
    b.op.run = in_space(memory, [&]<Memory kMemory>() { return store_handler<kMemory>(e, bytes); });
    b.op.extra |= (is_strong(b) ? u32{kWrite | kStrong | kHands} : u32{kWrite}) << kKindShift;
    b.list(b.operand(1), bytes, false);
    return b.op.run && b.op.count == e.count;
}

// ---- atom, red

/// The next value of a word, from the old one and the operands. Floats are rounded as their own instructions do.
template <class Word>
struct Update {
    Atomic kind;
    std::string_view type;
    bool flush;
    Word operator()(Word old, Word a, Word b) const;
};

u32 f32_sum(u32 x, u32 y, bool flush) {
    const auto ftz = [&](u32 v) { return flush && !(v & 0x7f800000u) ? v & 0x80000000u : v; };
    const f32 sum = as_f32(ftz(x)) + as_f32(ftz(y));
    return sum != sum ? 0x7fffffffu : ftz(as_u32(sum));
}

template <bool Brain>
u32 short_sum(u32 x, u32 y) {
    const f32v a = Brain ? from_bf16(u32v(x & 0xffffu)) : from_f16(u32v(x & 0xffffu));
    const f32v b = Brain ? from_bf16(u32v(y & 0xffffu)) : from_f16(u32v(y & 0xffffu));
    const f64v sum = convert<f64v>(a) + convert<f64v>(b);
    return (Brain ? to_bf16(sum) : to_f16(sum))[0];
}

template <class Word>
Word Update<Word>::operator()(Word old, Word a, Word b) const {
    using Signed = std::make_signed_t<Word>;
    const bool is_signed = type[0] == 's';
    switch (kind) {
        case Atomic::Add:
            if (type == "f32") return static_cast<Word>(f32_sum(static_cast<u32>(old), static_cast<u32>(a), flush));
            if (type == "f64") return static_cast<Word>(as_u64(as_f64(old) + as_f64(a)));
            if (type == "f16") return static_cast<Word>(short_sum<false>(static_cast<u32>(old), static_cast<u32>(a)));
            if (type == "bf16") return static_cast<Word>(short_sum<true>(static_cast<u32>(old), static_cast<u32>(a)));
            if (type == "f16x2" || type == "bf16x2") {
                const auto x = static_cast<u32>(old), y = static_cast<u32>(a);
                return static_cast<Word>(
                    type == "f16x2" ? short_sum<false>(x >> 16, y >> 16) << 16 | short_sum<false>(x, y)
                                    : short_sum<true>(x >> 16, y >> 16) << 16 | short_sum<true>(x, y));
            }
            return static_cast<Word>(old + a);
        case Atomic::Min:
            return is_signed ? static_cast<Word>(std::min(static_cast<Signed>(old), static_cast<Signed>(a)))
                             : std::min(old, a);
        case Atomic::Max:
            return is_signed ? static_cast<Word>(std::max(static_cast<Signed>(old), static_cast<Signed>(a)))
                             : std::max(old, a);
        case Atomic::And: return old & a;
        case Atomic::Or: return old | a;
        case Atomic::Xor: return old ^ a;
        case Atomic::Exch: return a;
        case Atomic::Cas: return old == a ? b : old;
        case Atomic::Inc: return old >= a ? 0 : static_cast<Word>(old + 1);
        default: return old == 0 || old > a ? a : static_cast<Word>(old - 1);
    }
}

/// What stood there before.
template <class Word>
Word update(u8* where, Word a, Word b, const Update<Word>& next) {
    std::atomic_ref<Word> cell(*reinterpret_cast<Word*>(where));
    Word value = cell.load();
    while (!cell.compare_exchange_weak(value, next(value, a, b))) {
    }
    return value;
}

template <class Word>
void reduce_words(u8* to, const u8* from, u64 bytes, Atomic kind, std::string_view type) {
    const Update<Word> next{kind, type, false};
    for (u64 at = 0; at < bytes; at += sizeof(Word)) {
        Word given;
        std::memcpy(&given, from + at, sizeof given);
        update(to + at, given, given, next);
    }
}

constexpr std::pair<const char*, Atomic> kAtomics[] = {
    {"add", Atomic::Add}, {"min", Atomic::Min},   {"max", Atomic::Max}, {"and", Atomic::And}, {"or", Atomic::Or},
    {"xor", Atomic::Xor}, {"exch", Atomic::Exch}, {"cas", Atomic::Cas}, {"inc", Atomic::Inc}, {"dec", Atomic::Dec}};

// op.extra: kind, kNarrow, kReturns, space; the type's name is the statement's.
constexpr u32 kSharedSpace = 1u << 10, kGlobalSpace = 1u << 11;

template <class Word, class Register>
Flow atomic(Warp& w, const Op& op) {
    const Program& program = *w.block->launch->program;
    const Statement& s = program.function->statements[op.statement];
    const bool global = op.extra & kGlobalSpace;
    const Update<Word> next{static_cast<Atomic>(op.extra & 15), s.words.back(), global && s.words.back() == "f32"};
    const LaneAddress address(w, op, 1);
    const Register *a = w.lanes<Register>(op.operand[2]), *b = w.lanes<Register>(op.operand[3]);
    Register old[kLanes];
    each_lane(w.mask, [&](int lane) {
        u8* const where = op.extra & kSharedSpace ? shared_memory(w, lane, address[lane], sizeof(Word), sizeof(Word))
                          : global                ? global_memory(w, lane, address[lane], sizeof(Word), sizeof(Word))
                                                  : generic_memory(w, lane, address[lane], sizeof(Word), sizeof(Word));
        old[lane] = update(where, static_cast<Word>(a[lane]), static_cast<Word>(b[lane]), next);
    });
    const auto kind = static_cast<u8>(op.extra >> kKindShift);
    const auto tell = [&]<Memory kMemory>() {
        add_up<kMemory>(w, op, address, sizeof(Word), true);
        note<kMemory>(w, address, sizeof(Word), kind);
    };
    if (op.extra & kSharedSpace) tell.template operator()<shared_memory>();
    else if (global) tell.template operator()<global_memory>();
    else tell.template operator()<generic_memory>();
    if (op.extra & kReturns) {
        auto* const to = reinterpret_cast<Register*>(w.to(op.operand[0]));
        each_lane(w.mask, [&](int lane) { to[lane] = old[lane]; });
    }
    return Flow::Next;
}

/// Several elements behind one another, each by itself. The list has the results' registers before the values', if asked for.
template <class Word>
Flow atomic_vector(Warp& w, const Op& op) {
    const Program& program = *w.block->launch->program;
    const std::string& type = program.function->statements[op.statement].words.back();
    const Update<Word> next{static_cast<Atomic>(op.extra & 15), type, type == "f32"};
    const LaneAddress address(w, op, 1);
    const u32 count = op.count, bytes = sizeof(Word) * count;
    u32 old[8][kLanes];
    each_lane(w.mask, [&](int lane) {
        u8* const where = global_memory(w, lane, address[lane], bytes, bytes);
        for (u32 i = 0; i < count; ++i) {
            const Word given = static_cast<Word>(w.lanes<u32>(program.lists[op.list + i])[lane]);
            old[i][lane] = update(where + i * sizeof(Word), given, given, next);
        }
    });
    add_up<global_memory>(w, op, address, bytes, true);
    note<global_memory>(w, address, bytes, static_cast<u8>(op.extra >> kKindShift));
    for (u32 i = 0; op.extra & kReturns && i < count; ++i) {
        auto* const to = reinterpret_cast<u32*>(w.to(program.lists[op.list - count + i]));
        each_lane(w.mask, [&](int lane) { to[lane] = old[i][lane]; });
    }
    return Flow::Next;
}

/// atom and red of vectors: sums of floats in global memory. PTX ISA 9.0, sections 9.7.13.5 and 9.7.13.7.
bool decode_atomic_vector(Builder& b, bool returns) {
    const std::string& type = b.type();
    const int bytes = type_bytes(type);
    if (!b.has("global") || !b.has("add") || bytes > 4 || type.find('f') == std::string::npos) return false;
    const size_t at = returns ? 1 : 0;
    b.op.extra = static_cast<u32>(Atomic::Add) | kGlobalSpace;
    address_operand(b, at, 1, false);
    if (returns && b.operand(0).kind != Operand::Kind::Sink) {
        b.op.extra |= kReturns;
        b.list(b.operand(0), 4, true);
    }
    const u32 results = b.op.count;
    b.list(b.operand(at + 1), 4, false);
    const bool sum = !returns && !b.has("release");
    b.op.extra |= (sum ? u32{kWrite | kStrong} : u32{kWrite | kStrong | kHands}) << kKindShift;
    b.op.run = bytes == 2 ? atomic_vector<u16> : atomic_vector<u32>;
    return b.op.count == element_of(b).count && (!(b.op.extra & kReturns) || results == b.op.count);
}

bool decode_atomic(Builder& b, bool returns) {
    const std::string& type = b.type();
    const int bytes = type_bytes(type);
    if (bytes < 2 || bytes > 8) return false;
    if (b.has("v2") || b.has("v4") || b.has("v8")) return decode_atomic_vector(b, returns);
    const auto* const kind =
        std::find_if(std::begin(kAtomics), std::end(kAtomics), [&](const auto& each) { return b.has(each.first); });
    if (kind == std::end(kAtomics)) return false;
    const bool shared = b.has("shared") || b.has("shared::cta") || b.has("shared::cluster");
    const u32 wide = bytes == 8 ? 8 : 4;
    const size_t at = returns ? 1 : 0;
    b.op.extra = static_cast<u32>(kind->second) | (shared ? kSharedSpace : b.has("global") ? kGlobalSpace : 0);
    address_operand(b, at, 1, shared);
    b.op.operand[2] = b.offset(at + 1, wide);
    b.op.operand[3] = kind->second == Atomic::Cas ? b.offset(at + 2, wide) : b.op.operand[2];
    if (returns && b.operand(0).kind != Operand::Kind::Sink) {
        b.op.extra |= kReturns;
        b.op.operand[0] = b.target(0, wide);
    }
    // Sums of floats whose results nobody asks for are no signals.
    const bool sum = !returns && type.find('f') != std::string::npos && !b.has("release");
    b.op.extra |= (sum ? u32{kWrite | kStrong} : u32{kWrite | kStrong | kHands}) << kKindShift;
    b.op.run = bytes == 8 ? atomic<u64, u64> : bytes == 2 ? atomic<u16, u32> : atomic<u32, u32>;
    return true;
}
bool decode_atom(Builder& b) { return decode_atomic(b, true); }
bool decode_red(Builder& b) { return !b.has("async") && decode_atomic(b, false); }

// ---- cp.async

// cp.async.ca.shared.global [dst], [src], bytes{, read | p}
Flow copy_async(Warp& w, const Op& op) {
    const LaneAddress to(w, op, 0);
    const u64* const from = w.lanes<u64>(op.operand[1]);
    const u32* const read = w.lanes<u32>(op.operand[3]);
    const auto bytes = static_cast<u32>(op.target);  // constant: see the decoder
    const u32 ignored = op.count ? w.predicate(op.operand[4]) : 0;
    Checks* const checks = w.block->checks();
    u32 at[kLanes];
    each_lane(w.mask, [&](int lane) {
        const u64 target = to[lane];
        shared_memory(w, lane, target, bytes, bytes);
        u32 given = ignored >> lane & 1 ? 0 : std::min(bytes, read[lane]);
        const u64 source = from[lane] + op.list;
        if (given) global_memory(w, lane, source, given, bytes);
        const PendingCopy copy{w.committed[lane],      static_cast<u32>(target), source,
                               static_cast<u8>(bytes), static_cast<u8>(given),   static_cast<u8>(lane)};
        if (w.block->cluster->at_once()) carry_out(w, copy);
        else w.copies.push_back(copy);
        if (checks && given && w.block->launch->before) checks->global_read(w, lane, source, source + given);
        if (checks && given) {
            const size_t range = w.block->launch->memory->number(w.range);
            if (checks->watches_reads(range)) checks->global_touch(w, 1u << lane, source, source + given, range, {});
        }
        at[lane] = static_cast<u32>(target);
    });
    if (checks) checks->copy_async(w, at, w.mask, bytes);
    if (Tally* const tally = w.block->cluster->tally) {
        u64 there[kLanes], here[kLanes];
        u32 given = 0;
        for (int lane = 0; lane < kLanes; ++lane) here[lane] = to[lane], there[lane] = from[lane] + op.list;
        each_lane(w.mask & ~ignored, [&](int lane) { given |= u32{read[lane] != 0} << lane; });
        tally->access(op.statement, Reach::Shared, here, w.mask, bytes, false);
        tally->access(op.statement, Reach::Global, there, given, bytes, false);
    }
    return Flow::Next;
}

Flow commit_group(Warp& w, const Op&) {
    each_lane(w.mask, [&](int lane) { ++w.committed[lane]; });
    return Flow::Next;
}
void waited(Warp& w, u32 kept) {
    Checks* const checks = w.block->checks();
    if (!checks) return;
    u32 groups = 0;
    each_lane(w.mask, [&](int lane) { groups = std::max(groups, w.committed[lane]); });
    if (groups > kept) checks->done(w, w.mask, checks->copies_actor(w), groups - kept);
}
Flow wait_group(Warp& w, const Op& op) {
    complete_copies(w, w.mask, static_cast<u32>(op.immediate));
    waited(w, static_cast<u32>(op.immediate));
    return Flow::Next;
}
Flow wait_all(Warp& w, const Op&) {
    commit_group(w, Op{});
    complete_copies(w, w.mask, 0);
    waited(w, 0);
    return Flow::Next;
}

}  // namespace

bool decode_bulk(Builder&);  // bulk.cpp

bool reduce(u8* to, const u8* from, u64 bytes, Atomic kind, std::string_view type) {
    const bool is_float = type.find('f') != std::string_view::npos, short_float = type == "f16" || type == "bf16";
    if (is_float && (kind != Atomic::Add || type.ends_with("x2"))) return false;
    if ((kind == Atomic::Inc || kind == Atomic::Dec) && type != "u32") return false;
    const int size = type_bytes(type);
    if (size == 8) reduce_words<u64>(to, from, bytes, kind, type);
    else if (size == 4) reduce_words<u32>(to, from, bytes, kind, type);
    else if (short_float) reduce_words<u16>(to, from, bytes, kind, type);
    else return false;
    return true;
}

namespace {

bool decode_cp(Builder& b) {
    if (b.words() < 3 || (b.word(1) != "async" && b.word(1) != "reduce")) return false;
    if (b.has("bulk") || b.has("mbarrier")) return decode_bulk(b);
    if (b.has("commit_group")) {
        b.op.run = commit_group;
        return true;
    }
    if (b.has("wait_all")) {
        b.op.run = wait_all;
        return true;
    }
    if (b.has("wait_group")) {
        b.op.run = wait_group;
        if (b.operand(0).kind != Operand::Kind::Number) return false;
        b.op.immediate = static_cast<i64>(b.operand(0).value);
        return true;
    }
    const Operand& bytes = b.operand(2);
    if (bytes.kind != Operand::Kind::Number || (bytes.value != 4 && bytes.value != 8 && bytes.value != 16))
        return false;
    b.op.run = copy_async;
    const i64 from_offset = b.operand(1).offset;
    address_operand(b, 0, 0, true);
    b.op.operand[1] = b.offset(b.operand(1).parts.at(0), 8);
    b.op.list = static_cast<u32>(from_offset);
    if (from_offset < 0) return false;
    b.op.target = static_cast<i32>(bytes.value);
    b.op.operand[3] = b.constant(bytes.value, 4);
    b.op.count = 0;
    if (b.operands() > 3) {
        const Operand& last = b.operand(3);
        const bool predicate = last.kind == Operand::Kind::Register && b.function().registers[last.reg].bytes == 0;
        if (predicate) {
            b.op.count = 1;
            b.op.operand[4] = b.offset(last, 0);
        } else if (
            last.kind == Operand::Kind::Number ||
            (last.kind == Operand::Kind::Register && b.function().registers[last.reg].bytes == 4)) {
            b.op.operand[3] = b.offset(last, 4);  // else a cache policy, which changes nothing here
        }
    }
    return true;
}

// ---- ldmatrix, stmatrix: 8 x 8 matrices of 16-bit elements, a row of 16 bytes from the address of each lane

void note_rows(Warp& w, const Op& op, const LaneAddress& address, u8 kind, const u16 (*stored)[8] = nullptr) {
    Checks* const checks = w.block->checks();
    if (Tally* const tally = w.block->cluster->tally) {
        u64 rows[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) rows[lane] = address[lane];
        tally->access(
            op.statement, Reach::Shared, rows, op.count == 4 ? kAllLanes : (1u << 8 * op.count) - 1, 16, false);
    }
    if (!checks) return;
    u32 at[kLanes], same = 0;
    for (u32 lane = 0; lane < 8 * op.count; ++lane) {
        at[lane] = static_cast<u32>(address[static_cast<int>(lane)]);
        const u8* const row = shared_memory(w, static_cast<int>(lane), at[lane], 16, 16);
        if (stored && std::memcmp(row, stored[lane], 16) == 0) same |= 1u << lane;
    }
    // The lane that gives the address of a row is not the one that has its values.
    checks->touch(w, at, op.count == 4 ? kAllLanes : (1u << 8 * op.count) - 1, 16, kind | kRows, same);
}

template <bool Transposed>
Flow load_matrix(Warp& w, const Op& op) {
    const LaneAddress address(w, op, 1);
    note_rows(w, op, address, kRead);
    const i32* const list = w.block->launch->program->lists.data() + op.list;
    u16 matrix[4][8][8];
    for (u32 m = 0; m < op.count; ++m)
        for (u32 row = 0; row < 8; ++row) {
            const int lane = static_cast<int>(8 * m + row);
            std::memcpy(matrix[m][row], shared_memory(w, lane, address[lane], 16, 16), 16);
        }
    for (u32 m = 0; m < op.count; ++m) {
        u32v result;
        for (int lane = 0; lane < kLanes; ++lane) {
            const int row = lane / 4, column = 2 * (lane % 4);
            const u32 low = Transposed ? matrix[m][column][row] : matrix[m][row][column];
            const u32 high = Transposed ? matrix[m][column + 1][row] : matrix[m][row][column + 1];
            result[lane] = high << 16 | low;
        }
        w.put<u32v>(list[m], result);
    }
    return Flow::Next;
}

template <bool Transposed>
Flow store_matrix(Warp& w, const Op& op) {
    const LaneAddress address(w, op, 1);
    const i32* const list = w.block->launch->program->lists.data() + op.list;
    u16 rows[kLanes][8];
    for (u32 m = 0; m < op.count; ++m) {
        u16(*const matrix)[8] = rows + 8 * m;
        const u32* const value = w.lanes<u32>(list[m]);
        for (int lane = 0; lane < kLanes; ++lane) {
            const int row = lane / 4, column = 2 * (lane % 4);
            (Transposed ? matrix[column][row] : matrix[row][column]) = static_cast<u16>(value[lane]);
            (Transposed ? matrix[column + 1][row] : matrix[row][column + 1]) = static_cast<u16>(value[lane] >> 16);
        }
    }
    note_rows(w, op, address, Transposed ? kWrite : kWrite | kQuads, rows);
    for (int lane = 0; lane < static_cast<int>(8 * op.count); ++lane)
        std::memcpy(shared_memory(w, lane, address[lane], 16, 16), rows[lane], 16);
    return Flow::Next;
}

u32 matrices(const Builder& b) { return b.has("x4") ? 4 : b.has("x2") ? 2 : b.has("x1") ? 1 : 0; }

bool decode_ldmatrix(Builder& b) {
    if (!b.has("m8n8") || b.type() != "b16") return false;
    b.op.run = b.has("trans") ? load_matrix<true> : load_matrix<false>;
    address_operand(b, 1, 1, b.has("shared") || b.has("shared::cta"));
    b.list(b.operand(0), 4, true);
    b.op.together = true;
    return b.op.count == matrices(b);
}
bool decode_stmatrix(Builder& b) {
    if (!b.has("m8n8") || b.type() != "b16") return false;
    b.op.run = b.has("trans") ? store_matrix<true> : store_matrix<false>;
    address_operand(b, 0, 1, b.has("shared") || b.has("shared::cta"));
    b.list(b.operand(1), 4, false);
    b.op.together = true;
    return b.op.count == matrices(b);
}

const Decoders kTable{
    {"ld", decode_ld},
    {"ldu", decode_ld},
    {"st", decode_st},
    {"atom", decode_atom},
    {"red", decode_red},
    {"cp", decode_cp},
    {"ldmatrix", decode_ldmatrix},
    {"stmatrix", decode_stmatrix},
};

}  // namespace
}  // namespace emu::ptx
