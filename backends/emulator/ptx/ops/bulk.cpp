// SPDX-License-Identifier: MIT
// Hopper's mbarriers, and bulk copies by the tensor memory accelerator. PTX ISA 9.0, sections 9.7.13.15 and 9.7.9.25.
//
// A copy into shared memory takes place when nobody of the cluster can go on without it, so that a wait that is missing
// shows. One out of shared memory takes place when its thread waits for it, or ends.
#include <algorithm>
#include <optional>
#include <string>

#include "../tensor_map.h"
#include "core/text.h"
#include "forms.h"
#include "reduce.h"

namespace emu::ptx {
namespace {

/// Registers of addresses may hold 32 or 64 bits; 64-bit ones of shared memory may be generic.
struct Address {
    const u64* wide = nullptr;
    const u32* narrow = nullptr;
    u64 offset = 0;
    u64 operator[](int lane) const { return (wide ? wide[lane] : u64{narrow[lane]}) + offset; }
};

constexpr u32 kWideBit = 1u << 16;  // of operand i: kWideBit << i

void address(Builder& b, const Operand& operand, size_t slot) {
    if (operand.kind != Operand::Kind::Address) throw SourceError("an address in brackets expected");
    const Operand& base = operand.parts.at(0);
    const bool wide = base.kind == Operand::Kind::Register && b.function().registers[base.reg].bytes == 8;
    b.op.operand[slot] = b.offset(base, wide ? 8 : 4);
    if (wide) b.op.extra |= kWideBit << slot;
    if (operand.offset) throw SourceError("an offset in this address is not supported");
}
void address_with_offset(Builder& b, const Operand& operand, size_t slot) {
    Operand plain = operand;
    b.op.immediate = operand.offset;
    plain.offset = 0;
    address(b, plain, slot);
}
Address address_of(const Warp& w, const Op& op, size_t slot, u64 offset = 0) {
    Address result;
    if (op.extra & (kWideBit << slot)) result.wide = w.lanes<u64>(op.operand[slot]);
    else result.narrow = w.lanes<u32>(op.operand[slot]);
    result.offset = offset;
    return result;
}

void arrive(Mbarrier& barrier, u32 count) {
    if (barrier.pending < count)
        throw Fault(
            "mbarrier",
            "more arrivals than the phase of the mbarrier awaits (" + std::to_string(barrier.expected) + ")");
    barrier.pending -= count;
    barrier.settle();
}

// ---- mbarrier

Flow initialise(Warp& w, const Op& op) {
    const Address at = address_of(w, op, 0, static_cast<u64>(op.immediate));
    const u32* const count = w.lanes<u32>(op.operand[1]);
    each_lane(w.mask, [&](int lane) {
        shared_memory(w, lane, at[lane], 8, 8);
        if (!count[lane] || count[lane] >= (1u << 20))
            throw Fault("mbarrier", "mbarrier.init with a count of " + std::to_string(count[lane]));
        const SharedPlace place = shared_place(w, at[lane]);
        Mbarrier fresh;
        fresh.expected = fresh.pending = count[lane];
        Mbarrier& there = place.block->mbarriers[place.offset];
        if (Checks* const checks = w.block->checks()) {
            checks->initialise(w, lane, *place.block, place.offset);
            fresh.handed = std::make_shared<Handed>();
            if (there.handed) {  // its copies' times go on
                fresh.handed->actor = there.handed->actor;
                fresh.handed->base = there.handed->base + static_cast<u32>(there.phase) + 1;
            } else {
                fresh.handed->actor = checks->new_actor(*place.block);
            }
        }
        there = fresh;
    });
    return Flow::Next;
}

Flow invalidate(Warp& w, const Op& op) {
    const Address at = address_of(w, op, 0, static_cast<u64>(op.immediate));
    each_lane(w.mask, [&](int lane) {
        mbarrier_at(w, lane, at[lane]);
        const SharedPlace place = shared_place(w, at[lane]);
        place.block->mbarriers.erase(place.offset);
    });
    return Flow::Next;
}

/// All lanes of an instruction name one mbarrier, as good as always.
bool uniform(const Warp& w, const Address& at) {
    const int first = std::countr_zero(w.mask);
    u32 same = 0;
    if (at.wide) {
        u64v all;
        std::memcpy(&all, at.wide, sizeof all);
        same = to_mask(bits<i64v>(all == at.wide[first]));
    } else {
        u32v all;
        std::memcpy(&all, at.narrow, sizeof all);
        same = to_mask(bits<i32v>(all == at.narrow[first]));
    }
    return (w.mask & ~same) == 0;
}

/// What lanes know who arrive at or look at a barrier; each of them alone if they name different ones.
template <class Each>
void each_barrier(Warp& w, u32 lanes, const Address& at, Each each) {
    if (!lanes) return;
    if (uniform(w, at)) {
        const int lane = std::countr_zero(lanes);
        each(lanes, lane, mbarrier_at(w, lane, at[lane]));
    } else {
        each_lane(lanes, [&](int lane) { each(1u << lane, lane, mbarrier_at(w, lane, at[lane])); });
    }
}

constexpr u32 kState = 1, kExpect = 2, kNoArrive = 4, kDrop = 8, kCount = 16;

// arrive{.expect_tx}{.drop}, expect_tx
Flow arrival(Warp& w, const Op& op) {
    const Address at = address_of(w, op, 0, static_cast<u64>(op.immediate));
    const u32* const number = w.lanes<u32>(op.operand[1]);
    u64v state = u64v(0);
    if (Checks* const checks = w.block->checks())
        each_barrier(w, w.mask, at, [&](u32 lanes, int lane, Mbarrier& barrier) {
            const SharedPlace place = shared_place(w, at[lane]);
            checks->used(w, lane, *place.block, place.offset);
            if (!(op.extra & kNoArrive)) checks->release(w, lanes, barrier.handed->now);
        });
    each_lane(w.mask, [&](int lane) {
        Mbarrier& barrier = mbarrier_at(w, lane, at[lane]);
        state[lane] = barrier.phase;
        if (op.extra & kExpect) {
            barrier.bytes += number[lane];
            if (barrier.bytes >= (1 << 20)) throw Fault("mbarrier", "the mbarrier awaits 2^20 bytes or more");
        }
        if (op.extra & kDrop) --barrier.expected;
        if (!(op.extra & kNoArrive)) arrive(barrier, op.extra & kCount ? number[lane] : 1);
    });
    if (op.extra & kState) w.put<u64v>(op.operand[2], state);
    return Flow::Next;
}

/// try_wait, test_wait: by parity, or by the state that an arrival gave.
template <bool Parity>
Flow wait(Warp& w, const Op& op) {
    const Address at = address_of(w, op, 0, static_cast<u64>(op.immediate));
    u32 ready = 0;
    const auto over = [&](const Mbarrier& barrier) {
        if constexpr (Parity) return to_mask(bits<i32v>((w.get<u32v>(op.operand[1]) & 1u) != u32v(barrier.phase & 1)));
        else return to_mask(bits<i64v>(w.get<u64v>(op.operand[1]) < u64v(barrier.phase)));
    };
    each_barrier(w, w.mask, at, [&](u32 lanes, int, const Mbarrier& barrier) { ready |= lanes & over(barrier); });
    if (Checks* const checks = w.block->checks())
        each_barrier(w, ready & w.mask, at, [&](u32 lanes, int lane, const Mbarrier& barrier) {
            const SharedPlace place = shared_place(w, at[lane]);
            checks->used(w, lane, *place.block, place.offset);
            checks->acquire(w, lanes, barrier.handed->seen);
        });
    w.put_predicate(op.operand[2], ready);
    if ((ready & w.mask) != w.mask) return Flow::Retry;
    w.retried[std::countr_zero(w.mask)] = {};  // asking has helped
    return Flow::Next;
}

bool decode_mbarrier(Builder& b) {
    const std::string& what = b.word(1);
    if (what == "init") {
        b.op.run = initialise;
        address_with_offset(b, b.operand(0), 0);
        b.op.operand[1] = b.offset(1, 4);
        return true;
    }
    if (what == "inval") {
        b.op.run = invalidate;
        address_with_offset(b, b.operand(0), 0);
        return true;
    }
    if (what == "try_wait" || what == "test_wait") {
        const bool parity = b.has("parity");
        b.op.run = parity ? wait<true> : wait<false>;
        address_with_offset(b, b.operand(1), 0);
        b.op.operand[1] = b.offset(2, parity ? 4 : 8);
        b.op.operand[2] = b.target(0, 0);
        return true;
    }
    b.op.run = arrival;
    if (what == "expect_tx") {
        b.op.extra |= kExpect | kNoArrive;
        address_with_offset(b, b.operand(0), 0);
        b.op.operand[1] = b.offset(1, 4);
        return true;
    }
    if ((what != "arrive" && what != "arrive_drop") || b.has("noComplete")) return false;
    if (what == "arrive_drop") b.op.extra |= kDrop;
    // A state may be asked for, or thrown away, or (of another block's barrier) not be named at all.
    const bool named = b.operand(0).kind != Operand::Kind::Address;
    const size_t at = named ? 1 : 0;
    if (named && b.operand(0).kind == Operand::Kind::Register) {
        b.op.extra |= kState;
        b.op.operand[2] = b.target(0, 8);
    }
    address_with_offset(b, b.operand(at), 0);
    if (b.has("expect_tx")) b.op.extra |= kExpect;
    else if (b.operands() > at + 1) b.op.extra |= kCount;
    b.op.operand[1] = b.operands() > at + 1 ? b.offset(at + 1, 4) : b.constant(1, 4);
    return true;
}

/// Arrivals of lanes whose copies are there: at once, as long as none of them but the last can end a phase. Otherwise those who
/// wait for it see what one arrival brings before the next one.
struct Arrivals {
    Warp* warp;
    const Op* op;
    u32 lanes;
    bool together;  // at one mbarrier
    u64 where[kLanes];
    u32 group[kLanes];
    std::shared_ptr<Clock> known;

    void operator()() {
        const int first = std::countr_zero(lanes);
        Mbarrier& there = mbarrier_at(*warp, first, where[first]);
        const auto count = static_cast<u32>(std::popcount(lanes));
        const u32 now = together && there.pending >= count ? lanes : 1u << first;
        std::erase_if(warp->copies, [&](const PendingCopy& copy) {
            const bool due = (now >> copy.lane & 1) && copy.group <= group[copy.lane];
            if (due) carry_out(*warp, copy);
            return due;
        });
        if (known) there.handed->now.join(*known);
        arrive(there, static_cast<u32>(std::popcount(now)));
        lanes &= ~now;
        if (!lanes) return;
        if (warp->block->launch->schedule.order == Order::Eager) (*this)();
        else warp->block->cluster->pending.push_front({warp, op, *this, false});
    }
};

// cp.async.mbarrier.arrive{.noinc}: an arrival when the thread's copies so far are there.
Flow arrive_after_copies(Warp& w, const Op& op) {
    const Address at = address_of(w, op, 0, static_cast<u64>(op.immediate));
    Checks* const checks = w.block->checks();
    std::shared_ptr<Clock> known;  // by those who wait for the arrivals
    if (checks) {
        known = std::make_shared<Clock>();
        checks->release(w, w.mask, *known);
        u32& done = entry(known->known, checks->copies_actor(w)).all;
        each_lane(w.mask, [&](int lane) { done = std::max(done, w.committed[lane] + 1); });
    }
    Arrivals arrivals{&w, &op, w.mask, uniform(w, at), {}, {}, known};
    each_lane(w.mask, [&](int lane) {
        Mbarrier& barrier = mbarrier_at(w, lane, at[lane]);
        if (op.extra & kCount) ++barrier.pending;
        arrivals.where[lane] = at[lane];
        // What was issued so far is a group of its own.
        arrivals.group[lane] = w.committed[lane]++;
    });
    Cluster& cluster = *w.block->cluster;
    if (w.block->launch->schedule.order != Order::Random) {
        cluster.later(w, op, arrivals);
        return Flow::Next;
    }
    each_lane(w.mask, [&](int lane) {
        arrivals.lanes = 1u << lane;
        cluster.later(w, op, arrivals);
    });
    return Flow::Next;
}

// ---- boxes of tensors

struct Box {
    TensorMap map;
    i32 start[5];
    u64 bytes() const {
        u64 result = map.element_bytes;
        for (u32 i = 0; i < map.rank; ++i) result *= map.box[i];
        return result;
    }
};

void add_up(const Warp& w, const Op& op, u64 in_shared, u64 inside) {
    if (Tally* const tally = w.block->cluster->tally) tally->bulk(op.statement, in_shared, inside);
}

u32 fill_byte(const TensorMap& map) { return map.fill_nan ? 0xff : 0; }

/// For each row of a box: its place among the rows in shared memory, and the bytes of it that lie in the tensor, from `from` on
/// to `to`, with the address of byte 0.
template <class Function>
void each_row(const Box& box, Function function) {
    const TensorMap& map = box.map;
    u32 rows = 1;
    for (u32 i = 1; i < map.rank; ++i) rows *= map.box[i];
    const i64 bytes = map.box[0] * map.element_bytes, first = i64{box.start[0]} * map.element_bytes,
              end = (i64{map.dims[0]} + 1) * map.element_bytes;
    for (u32 row = 0; row < rows; ++row) {
        bool inside = true;
        u64 global = map.base + static_cast<u64>(first);
        u32 rest = row;
        for (u32 i = 1; i < map.rank; ++i) {
            const i64 at = i64{box.start[i]} + rest % map.box[i];
            rest /= map.box[i];
            inside &= at >= 0 && at <= i64{map.dims[i]};
            global += static_cast<u64>(at) * map.strides[i - 1];
        }
        const i64 from = inside ? std::clamp<i64>(-first, 0, bytes) : 0,
                  to = inside ? std::clamp<i64>(end - first, from, bytes) : 0;
        function(row, global, from, to);
    }
}

/// The operation of cp.reduce; none: a copy.
using Reduction = std::optional<Atomic>;
Reduction reduction_of(const Builder& b) {
    constexpr std::pair<const char*, Atomic> kNames[] = {
        {"add", Atomic::Add}, {"min", Atomic::Min}, {"max", Atomic::Max}, {"inc", Atomic::Inc},
        {"dec", Atomic::Dec}, {"and", Atomic::And}, {"or", Atomic::Or},   {"xor", Atomic::Xor}};
    for (const auto& [name, kind] : kNames)
        if (b.has(name)) return kind;
    throw SourceError("no operation of a reduction");
}
std::string_view element_type(const TensorMap& map) {
    constexpr std::string_view kTypes[] = {"u8",  "u16", "u32",  "s32", "u64", "s64", "f16",
                                           "f32", "f64", "bf16", "f32", "f32", "f32"};
    return kTypes[map.type];
}

/// Moves the box between global memory and `shared`, where its rows lie behind each other at `offset`.
void move_box(const Box& box, u8* shared, u32 offset, bool out, Reduction reduction = {}) {
    const u32 row_bytes = box.map.box[0] * box.map.element_bytes;
    each_row(box, [&](u32 row, u64 global, i64 from, i64 to) {
        for (u32 byte = 0; byte < row_bytes; byte += 16) {
            u8* const place = shared + swizzled(offset + row * row_bytes + byte, box.map.swizzle);
            if (!out && from <= byte && to >= i64{byte} + 16) {  // as good as always
                std::memcpy(place, reinterpret_cast<const u8*>(global + byte), 16);
                continue;
            }
            if (!out) std::memset(place, static_cast<int>(fill_byte(box.map)), 16);
            const i64 low = std::max<i64>(from, byte), high = std::min<i64>(to, i64{byte} + 16);
            if (low >= high) continue;
            u8* const there = reinterpret_cast<u8*>(global + static_cast<u64>(low));
            u8* const here = place + (low - byte);
            if (reduction) reduce(there, here, static_cast<u64>(high - low), *reduction, element_type(box.map));
            else if (out) std::memcpy(there, here, static_cast<size_t>(high - low));
            else std::memcpy(here, there, static_cast<size_t>(high - low));
        }
    });
}

Box box_of(Warp& w, const Op& op, int lane) {
    Box box{};
    const u64 where = w.lanes<u64>(op.operand[1])[lane];
    const u8* const bytes = generic_memory(w, lane, where, sizeof box.map, 64);
    std::memcpy(&box.map, bytes, sizeof box.map);
    if (std::memcmp(box.map.magic, kTensorMapMagic, sizeof box.map.magic) != 0)
        throw Fault("tensor-map", "what the tensor map's address leads to is no tensor map");
    if (box.map.rank != op.count)
        throw Fault(
            "tensor-map",
            "a box of " + std::to_string(op.count) + " dimensions of a tensor of " + std::to_string(box.map.rank));
    for (u32 i = 0; i < op.count; ++i) box.start[i] = w.lanes<i32>(w.block->launch->program->lists[op.list + i])[lane];
    each_row(box, [&](u32, u64 global, i64 from, i64 to) {
        if (from < to) global_memory(w, lane, global + static_cast<u64>(from), static_cast<u32>(to - from), 1);
    });
    return box;
}

/// Bytes of the box that lie in the tensor.
u64 bytes_inside(const Box& box) {
    u64 bytes = 0;
    each_row(box, [&](u32, u64, i64 from, i64 to) { bytes += static_cast<u64>(to - from); });
    return bytes;
}

/// Whether places along two dimensions add up, as in maps of packed sequences.
bool adds_up(const TensorMap& map) {
    for (u32 i = 1; i < map.rank; ++i)
        for (u32 j = i + 1; j < map.rank; ++j)
            if (map.dims[i] && map.dims[j] && map.strides[i - 1] == map.strides[j - 1]) return true;
    return false;
}

/// By such a map an H200 was seen to touch what lies where a box is that lies wholly outside of the tensor, though it reads
/// zeros; not by others (benchmarks/flash_attention_varlen.md).
void check_touched(const Warp& w, const Box& box) {
    if (bytes_inside(box) || !adds_up(box.map)) return;
    const u64 bytes = u64{box.map.box[0]} * box.map.element_bytes;
    each_row(box, [&](u32, u64 global, i64, i64) {
        if (!w.block->launch->memory->find(global, bytes, w.range))
            throw Fault(
                "bounds",
                "a box outside of its tensor where there is no memory, by a map with two dimensions of one pitch: "
                "a GPU was seen to touch what lies there",
                700);
    });
}

/// Tells the checks of global memory that a bulk copy reads or writes.
void note_bytes(Warp& w, Checks& checks, int lane, u64 begin, u64 end, bool writes, bool reduces = false) {
    const Ranges& memory = *w.block->launch->memory;
    w.range = memory.find(begin, end - begin, w.range);
    const size_t range = memory.number(w.range);
    if (writes) checks.global_write(w, begin, end, range);
    else checks.global_read(w, lane, begin, end);
    if (writes || checks.watches_reads(range)) checks.global_bulk(w, lane, begin, end, range, writes, reduces);
}

/// Of a box.
void note_box(Warp& w, Checks& checks, int lane, const Box& box, bool writes, bool reduces = false) {
    if (!writes && !w.block->launch->before && !checks.watches_global()) return;
    each_row(box, [&](u32, u64 global, i64 from, i64 to) {
        if (from < to)
            note_bytes(
                w, checks, lane, global + static_cast<u64>(from), global + static_cast<u64>(to), writes, reduces);
    });
}

void check_shared_box(Warp& w, int lane, u64 address, const Box& box) {
    const u64 bytes = box.bytes();
    shared_memory(w, lane, address, static_cast<u32>(bytes), 128);
}

void arrived(Mbarrier& barrier, u64 bytes) {
    barrier.bytes -= static_cast<i64>(bytes);
    if (barrier.bytes < 0 && !barrier.pending)
        throw Fault("mbarrier", std::to_string(-barrier.bytes) + " bytes more than the phase of the mbarrier awaits");
    barrier.settle();
}

/// [shared], [map, {coordinates}], [mbarrier]{, mask}
Flow load_box(Warp& w, const Op& op) {
    const Address to = address_of(w, op, 0), barrier = address_of(w, op, 2);
    Cluster& cluster = *w.block->cluster;
    each_lane(w.mask, [&](int lane) {
        const Box box = box_of(w, op, lane);
        check_touched(w, box);
        check_shared_box(w, lane, to[lane], box);
        const SharedPlace place = shared_place(w, to[lane]), signal = shared_place(w, barrier[lane]);
        if (Checks* const checks = w.block->checks()) note_box(w, *checks, lane, box, false);
        u32 ranks = 1u << place.block->rank;
        if (op.immediate) ranks = w.lanes<u32>(op.operand[3])[lane] & 0xffff;
        if (w.block->cluster->tally)
            add_up(w, op, box.bytes() * static_cast<u64>(std::popcount(ranks)), bytes_inside(box));
        for (u32 rank = 0; rank < 16; ++rank) {
            if (!(ranks >> rank & 1)) continue;
            if (rank >= cluster.blocks.size())
                throw Fault("bounds", "a multicast to block " + std::to_string(rank) + " of a smaller cluster", 700);
            Block* const target = op.immediate ? &cluster.blocks[rank] : place.block;
            // A multicast signals the barrier at the same place in each block.
            Block* const signalled = op.immediate ? target : signal.block;
            const u32 offset = place.offset, where = signal.offset;
            const auto announced = signalled->mbarriers.find(where);
            if (announced == signalled->mbarriers.end()) throw Fault("mbarrier", "a copy signals what is no mbarrier");
            if (Checks* const checks = w.block->checks()) {
                if (target != w.block) checks->remote(w, *target);
                checks->used(w, lane, *signalled, where);
                checks->bulk_write(w, lane, *target, offset, box.bytes(), announced->second);
            }
            cluster.later(w, op, [box, target, offset, signalled, where] {
                move_box(box, target->shared, offset, false);
                const auto found = signalled->mbarriers.find(where);
                if (found == signalled->mbarriers.end())
                    throw Fault("mbarrier", "a copy signals an mbarrier that is gone");
                arrived(found->second, box.bytes());
            });
        }
    });
    return Flow::Next;
}

void keep_store(Warp& w, int lane, std::function<void()> run) {
    if (w.block->cluster->at_once()) run();
    else w.stores.push_back({w.stores_committed[lane], static_cast<u8>(lane), std::move(run)});
}

/// [map, {coordinates}], [shared]; op.target: a reduction's Atomic, or -1
Flow store_box(Warp& w, const Op& op) {
    const Address from = address_of(w, op, 0);
    const Reduction reduction = op.target < 0 ? Reduction{} : static_cast<Atomic>(op.target);
    each_lane(w.mask, [&](int lane) {
        const Box box = box_of(w, op, lane);
        if (reduction && !reduce(nullptr, nullptr, 0, *reduction, element_type(box.map)))
            throw Fault(
                "tensor-map", "a reduction that the emulator does not have for tensors of type " +
                                  std::string(element_type(box.map)));
        check_shared_box(w, lane, from[lane], box);
        const SharedPlace place = shared_place(w, from[lane]);
        if (Checks* const checks = w.block->checks()) {
            checks->bulk_read(w, lane, *place.block, place.offset, box.bytes());
            note_box(w, *checks, lane, box, true, reduction.has_value());
        }
        if (w.block->cluster->tally) add_up(w, op, box.bytes(), bytes_inside(box));
        keep_store(
            w, lane, [box, place, reduction] { move_box(box, place.block->shared, place.offset, true, reduction); });
    });
    return Flow::Next;
}

// ---- bytes

/// [shared], [global], size, [mbarrier], or from shared memory to another block's.
template <bool FromShared>
Flow load_bytes(Warp& w, const Op& op) {
    const Address to = address_of(w, op, 0), from = address_of(w, op, 1), barrier = address_of(w, op, 3);
    const u32* const size = w.lanes<u32>(op.operand[2]);
    each_lane(w.mask, [&](int lane) {
        const u32 bytes = size[lane];
        if (bytes % 16)
            throw Fault(
                "misaligned", "a bulk copy of " + std::to_string(bytes) + " bytes, which is no multiple of 16", 716);
        u8* const target = shared_memory(w, lane, to[lane], bytes, 16);
        const u8* const source =
            FromShared ? shared_memory(w, lane, from[lane], bytes, 16) : global_memory(w, lane, from[lane], bytes, 16);
        const Mbarrier& announced = mbarrier_at(w, lane, barrier[lane]);
        const SharedPlace signal = shared_place(w, barrier[lane]);
        if (Checks* const checks = w.block->checks()) {
            checks->used(w, lane, *signal.block, signal.offset);
            if constexpr (FromShared) {
                const SharedPlace there = shared_place(w, from[lane]);
                checks->bulk_read(w, lane, *there.block, there.offset, bytes, &announced);
            } else {
                note_bytes(w, *checks, lane, from[lane], from[lane] + bytes, false);
            }
            const SharedPlace here = shared_place(w, to[lane]);
            checks->bulk_write(w, lane, *here.block, here.offset, bytes, announced);
        }
        add_up(w, op, bytes, FromShared ? 0 : bytes);
        w.block->cluster->later(w, op, [target, source, bytes, signal] {
            std::memcpy(target, source, bytes);
            const auto found = signal.block->mbarriers.find(signal.offset);
            if (found == signal.block->mbarriers.end())
                throw Fault("mbarrier", "a copy signals an mbarrier that is gone");
            arrived(found->second, bytes);
        });
    });
    return Flow::Next;
}

/// [global], [shared], size; op.target: a reduction's Atomic, or -1
Flow store_bytes(Warp& w, const Op& op) {
    const Address to = address_of(w, op, 0), from = address_of(w, op, 1);
    const Reduction reduction = op.target < 0 ? Reduction{} : static_cast<Atomic>(op.target);
    const std::string_view type = w.block->launch->program->function->statements[op.statement].words.back();
    const u32* const size = w.lanes<u32>(op.operand[2]);
    each_lane(w.mask, [&](int lane) {
        const u32 bytes = size[lane];
        if (bytes % 16)
            throw Fault(
                "misaligned", "a bulk copy of " + std::to_string(bytes) + " bytes, which is no multiple of 16", 716);
        u8* const target = global_memory(w, lane, to[lane], bytes, 16);
        const u8* const source = shared_memory(w, lane, from[lane], bytes, 16);
        if (Checks* const checks = w.block->checks()) {
            const SharedPlace place = shared_place(w, from[lane]);
            checks->bulk_read(w, lane, *place.block, place.offset, bytes);
            note_bytes(w, *checks, lane, to[lane], to[lane] + bytes, true, reduction.has_value());
        }
        add_up(w, op, bytes, bytes);
        keep_store(w, lane, [target, source, bytes, reduction, type] {
            if (reduction) reduce(target, source, bytes, *reduction, type);
            else std::memcpy(target, source, bytes);
        });
    });
    return Flow::Next;
}

Flow commit_stores(Warp& w, const Op&) {
    each_lane(w.mask, [&](int lane) { ++w.stores_committed[lane]; });
    return Flow::Next;
}
Flow wait_stores(Warp& w, const Op& op) {
    complete_stores(w, w.mask, static_cast<u32>(op.immediate));
    if (Checks* const checks = w.block->checks())
        each_lane(w.mask, [&](int lane) {
            const u32 groups = w.stores_committed[lane], kept = static_cast<u32>(op.immediate);
            if (groups <= kept) return;
            checks->done(w, 1u << lane, checks->stores_actor(w, lane), groups - kept);
            // .read waits until shared memory has been read, and no longer.
            if (!op.extra) checks->done(w, 1u << lane, checks->stores_written_actor(w, lane), groups - kept);
        });
    return Flow::Next;
}
Flow nothing(Warp&, const Op&) { return Flow::Next; }

/// [map, {c0, c1}]: the map's address into operand 1, the coordinates into the list.
bool map_operand(Builder& b, const Operand& operand) {
    if (operand.kind != Operand::Kind::Address || operand.parts.size() != 2 || operand.offset) return false;
    b.op.operand[1] = b.offset(operand.parts[0], 8);
    b.list(operand.parts[1], 4, false);
    return true;
}

bool decode_tensor(Builder& b) {
    if (b.has("im2col") || b.has("tile::gather4") || b.has("tile::scatter4")) return false;
    if (b.has("prefetch")) {
        b.op.run = nothing;
        return true;
    }
    if (b.has("global") && b.has("bulk_group")) {
        b.op.run = store_box;
        if (b.has("reduce")) b.op.target = static_cast<i32>(*reduction_of(b));
        if (!map_operand(b, b.operand(0))) return false;
        address(b, b.operand(1), 0);
        return true;
    }
    if (!b.has("mbarrier::complete_tx::bytes")) return false;
    b.op.run = load_box;
    if (!map_operand(b, b.operand(1))) return false;
    address(b, b.operand(0), 0);
    address(b, b.operand(2), 2);
    if (b.has("multicast::cluster")) {
        b.op.immediate = 1;
        b.op.operand[3] = b.offset(3, 4);
    }
    return true;
}

}  // namespace

Mbarrier& mbarrier_at(Warp& w, int lane, u64 address) {
    shared_memory(w, lane, address, 8, 8);
    const SharedPlace place = shared_place(w, address);
    const auto found = place.block->mbarriers.find(place.offset);
    if (found == place.block->mbarriers.end())
        throw Fault("mbarrier", "there is no mbarrier at " + hex(place.offset) + ": nobody has initialised one");
    return found->second;
}

bool decode_bulk(Builder& b) {
    if (b.has("mbarrier")) {
        b.op.run = arrive_after_copies;
        address_with_offset(b, b.operand(0), 0);
        if (!b.has("noinc")) b.op.extra |= kCount;
        return true;
    }
    if (b.has("commit_group")) {
        b.op.run = commit_stores;
        return true;
    }
    if (b.has("wait_group")) {
        b.op.run = wait_stores;
        b.op.extra = b.has("read");
        if (b.operand(0).kind != Operand::Kind::Number) return false;
        b.op.immediate = static_cast<i64>(b.operand(0).value);
        return true;
    }
    if (b.has("tensor")) return decode_tensor(b);
    if (b.has("prefetch")) {
        b.op.run = nothing;
        return true;
    }
    if (b.has("multicast::cluster")) return false;
    if (b.has("mbarrier::complete_tx::bytes")) {
        if (b.has("reduce")) return false;  // into another block's shared memory
        const bool from_shared = b.word(b.words() - 2) == "shared::cta";
        b.op.run = from_shared ? load_bytes<true> : load_bytes<false>;
        address(b, b.operand(0), 0);
        address(b, b.operand(1), 1);
        b.op.operand[2] = b.offset(2, 4);
        address(b, b.operand(3), 3);
        return true;
    }
    if (!b.has("bulk_group")) return false;
    if (b.has("reduce")) {
        b.op.target = static_cast<i32>(*reduction_of(b));
        if (!reduce(nullptr, nullptr, 0, static_cast<Atomic>(b.op.target), b.type())) return false;
    }
    b.op.run = store_bytes;
    address(b, b.operand(0), 0);
    address(b, b.operand(1), 1);
    b.op.operand[2] = b.offset(2, 4);
    return true;
}

namespace {
const Decoders kTable{{"mbarrier", decode_mbarrier}};
}  // namespace
}  // namespace emu::ptx
