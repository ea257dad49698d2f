// SPDX-License-Identifier: MIT
// Calls of device functions, and the way back. PTX ISA 9.0, sections 7.1 (functions) and 9.7.12.6 (call), 9.7.12.7 (ret).
#include <algorithm>
#include <memory>

#include "core/text.h"
#include "forms.h"
#include "library.h"

namespace emu::ptx {
namespace {

constexpr u32 kApart = 32;  // bytes between the variables of calls: whose end is missed is found
constexpr u32 kStack =
    512 * 1024;  // what local memory a thread may have (CUDA C++ Programming Guide, compute capabilities)
constexpr int kStackError = 714;  // cudaErrorHardwareStackError

/// Values that a call hands over, of one lane: all are taken before the first one is given, which may overwrite another.
class Handed {
public:
    void begin() { values_.clear(), next_ = 0; }
    /// As `bytes` bytes; `base`: of the function's frame.
    void take(Warp& w, int lane, const Place& from, u32 base, u32 bytes) {
        const size_t at = values_.size();
        values_.resize(at + bytes);
        const bool unused = from.where == Place::Where::Register && from.at < 0;
        if (unused || !bytes) return;
        const u32 known = std::min(bytes, from.bytes);
        const void* const source = from.where == Place::Where::Frame
                                       ? local_memory(w, lane, base + static_cast<u32>(from.at), known, 1)
                                       : static_cast<const void*>(w.at(from.at) + static_cast<u32>(lane) * from.bytes);
        std::memcpy(values_.data() + at, source, known);
    }
    void give(Warp& w, int lane, const Place& to, u32 base) {
        const char* const value = values_.data() + next_;
        next_ += to.bytes;
        if (!to.bytes || (to.where == Place::Where::Register && to.at < 0)) return;
        void* const target =
            to.where == Place::Where::Frame
                ? static_cast<void*>(local_memory(w, lane, base + static_cast<u32>(to.at), to.bytes, 1))
                : w.to(to.at) + static_cast<u32>(lane) * to.bytes;
        std::memcpy(target, value, to.bytes);
    }

private:
    std::vector<char> values_;
    size_t next_ = 0;
};

using Registers = std::vector<char>;

u32 size_of(const Routine::Slot& slot) { return slot.bytes ? slot.bytes * u32{kLanes} : 4; }

template <class Visit>
void each_register(const Routine& routine, Visit visit) {
    for (const Routine::Slot& each : routine.slots) visit(each);
    for (const Routine::Address& each : routine.addresses) visit(Routine::Slot{each.offset, each.bytes});
}

Registers saved(const Warp& w, const Routine& routine) {
    Registers all;
    each_register(routine, [&](const Routine::Slot& slot) {
        const char* const at = w.to(slot.offset);
        all.insert(all.end(), at, at + size_of(slot));
    });
    return all;
}

void restore(const Warp& w, int lane, const Routine& routine, const Registers& all) {
    const char* from = all.data();
    each_register(routine, [&](const Routine::Slot& slot) {
        char* const to = w.to(slot.offset);
        if (slot.bytes) {
            const u32 at = static_cast<u32>(lane) * slot.bytes;
            std::memcpy(to + at, from + at, slot.bytes);
        } else {
            u32 now, then;
            std::memcpy(&now, to, 4), std::memcpy(&then, from, 4);
            now = (now & ~(1u << lane)) | (then & 1u << lane);
            std::memcpy(to, &now, 4);
        }
        from += size_of(slot);
    });
}

void enter(Warp& w, u32 lanes, const Call& call, const Routine& callee) {
    const Program& program = *w.block->launch->program;
    if (!callee.refusal.empty()) throw Fault("call", callee.name + " cannot be called: " + callee.refusal);
    std::shared_ptr<const Registers> kept;
    if (call.keeps) kept = std::make_shared<const Registers>(saved(w, program.routines[call.caller]));
    Calls& calls = *w.calls;
    Handed values;
    each_lane(lanes, [&](int lane) {
        std::vector<Calls::Frame>& frames = calls.frames[lane];
        const u32 from = calls.base(lane), end = frames.empty() ? program.local_bytes : frames.back().top;
        const u32 base = round_up(end + kApart, callee.frame_align), top = base + callee.frame_bytes;
        if (top > kStack)
            throw Fault(
                "stack",
                "lane " + std::to_string(lane) + ": " + std::to_string(frames.size()) +
                    " calls within each other, and no local memory is left",
                kStackError);
        values.begin();
        for (size_t i = 0; i < call.given.size(); ++i) values.take(w, lane, call.given[i], from, callee.given[i].bytes);
        std::vector<u8>& memory = calls.memory[lane];
        const u32 own = program.local_bytes;
        if (memory.size() < top - own) memory.resize(std::max<size_t>(top - own, 2 * memory.size()));
        std::fill(memory.begin() + (base - own), memory.begin() + (top - own), u8{0xff});  // nobody has written it
        frames.push_back({&call, base, top, kept});
        for (const Place& each : callee.given) values.give(w, lane, each, base);
        for (const Routine::Address& each : callee.addresses) {
            const u64 address = base + each.variable;
            std::memcpy(w.to(each.offset) + static_cast<u32>(lane) * each.bytes, &address, each.bytes);
        }
    });
}

Flow call_direct(Warp& w, const Op& op) {
    const Program& program = *w.block->launch->program;
    const Call& call = program.calls[op.extra];
    const Routine& callee = program.routines[static_cast<size_t>(call.callee)];
    enter(w, w.mask, call, callee);
    return spread(w, {{callee.begin, w.mask}});
}

/// Lanes with unlike pointers go to unlike functions.
Flow call_indirect(Warp& w, const Op& op) {
    const Program& program = *w.block->launch->program;
    const Call& call = program.calls[op.extra];
    const u64* const address = w.lanes<u64>(op.operand[0]);
    std::vector<Target> callees;  // by their numbers
    each_lane(w.mask, [&](int lane) {
        const auto callee = std::find_if(
            program.routines.begin() + 1, program.routines.end(),
            [&](const Routine& each) { return each.address == address[lane]; });
        const std::string text = "lane " + std::to_string(lane) + ": " + hex(address[lane]);
        if (callee == program.routines.end()) throw Fault("call", text + " is not the address of a function");
        if (!callee->refusal.empty()) throw Fault("call", callee->name + " cannot be called: " + callee->refusal);
        if (const std::string why = unlike(call, *callee); !why.empty()) throw Fault("call", text + ": " + why);
        add_lane(callees, static_cast<u32>(callee - program.routines.begin()), lane);
    });
    for (Target& each : callees) {
        enter(w, each.lanes, call, program.routines[each.pc]);
        each.pc = program.routines[each.pc].begin;
    }
    return spread(w, callees);
}

Flow come_back(Warp& w, const Op& op) {
    const Program& program = *w.block->launch->program;
    const Routine& callee = program.routines[op.extra];
    std::vector<Target> targets;
    Handed values;
    each_lane(w.mask, [&](int lane) {
        std::vector<Calls::Frame>& frames = w.calls->frames[lane];
        const Calls::Frame frame = frames.back();
        const Call& call = *frame.call;
        values.begin();
        for (size_t i = 0; i < call.results.size(); ++i)
            values.take(w, lane, callee.results[i], frame.base, call.results[i].bytes);
        frames.pop_back();
        if (frame.kept) restore(w, lane, program.routines[call.caller], *frame.kept);
        for (const Place& each : call.results) values.give(w, lane, each, w.calls->base(lane));
        add_lane(targets, call.at + 1, lane);
    });
    return spread(w, targets);
}
Flow leave(Warp&, const Op&) { return Flow::Exit; }

bool decode_call(Builder& b) {
    b.op.lasting = true;
    if (decode_library_call(b)) return true;
    b.op.lasting = false;
    b.call();
    b.op.run = b.operand(1).kind == Operand::Kind::Register ? call_indirect : call_direct;
    return true;
}

bool decode_ret(Builder& b) {
    b.op.extra = b.routine();
    b.op.run = b.routine() ? come_back : leave;
    return true;
}

const Decoders kTable{{"call", decode_call}, {"ret", decode_ret}};

}  // namespace
}  // namespace emu::ptx
