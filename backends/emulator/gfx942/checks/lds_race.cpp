// SPDX-License-Identifier: MIT
// One record a byte of LDS: who wrote it and who read it since the last barrier.
//
// A wave's own LDS instructions are done in order, so only different waves race. An access that was issued but not waited for
// when its wave reaches the barrier may be done after it: such accesses count as made after the barrier, too.
#include <cstring>

#include "shadow.h"

namespace emu::checks {
namespace {

constexpr size_t kOpen = 16;        // LGKM_CNT has four bits: no more accesses than these can be under way

void record(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    Workgroup& group = *w.group;
    LdsRaceGroup& state = group.shadow->lds_race;
    const u32 epoch = group.barriers + 1;
    const u16 me = static_cast<u16>(1u << w.id);
    const u8 writer = static_cast<u8>(w.id + 1);
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const u32 first = address[std::countr_zero(rest)];
        for (u32 at = first; at < first + bytes && at < state.bytes.size(); ++at) {
            LdsRaceGroup::Byte& byte = state.bytes[at];
            if (byte.epoch != epoch) byte = {epoch, 0, 0, false, 0, 0};
            const bool write = kind != AccessKind::Read, atomic = kind == AccessKind::Atomic;
            const bool other_wrote = byte.writer && byte.writer != writer && !(atomic && byte.atomic);
            const bool other_read = write && (byte.readers & ~me);
            if (other_wrote || other_read) {
                const int lane = std::countr_zero(rest);
                int who = byte.writer - 1;
                if (!other_wrote) who = std::countr_zero(static_cast<u32>(byte.readers & ~me));
                report(w, op, kLdsRace, lane,
                       std::string(write ? "write" : "read") + " of LDS byte " + std::to_string(at) + ", which wave " +
                           std::to_string(who) + " " + (other_wrote ? "wrote" : "read") + " with no barrier between",
                       "", "the other: " + where(*group.launch, other_wrote ? byte.write_op : byte.read_op));
                byte = {epoch, 0, 0, false, 0, 0};          // say it once for this pair
            }
            if (write) {
                byte.writer = writer;
                byte.atomic = atomic;
                byte.write_op = op.index;
            } else {
                byte.readers |= me;
                byte.read_op = op.index;
            }
        }
    }
}

}  // namespace

void begin(LdsRaceGroup& state, const Workgroup& group) {
    state.bytes.resize(group.lds_bytes);
    state.open.resize(group.waves.size());
}

namespace lds_race {

void on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    record(w, op, address, lanes, bytes, kind);
    auto& open = w.group->shadow->lds_race.open[w.id];
    if (open.size() == kOpen) open.erase(open.begin());
    open.push_back({&op, lanes, bytes, kind, {}});
    std::copy(address, address + kLanes, open.back().address);
}

void before(Wave& w, const Op& op) {
    if (op.inst.format != Format::Sopp || !op.inst.row || std::strcmp(op.inst.row->name, "s_waitcnt")) return;
    auto& open = w.group->shadow->lds_race.open[w.id];
    const size_t outstanding = static_cast<u32>(op.inst.simm) >> 8 & 15;        // LGKM_CNT
    if (open.size() > outstanding) open.erase(open.begin(), open.end() - outstanding);
}

void at_barrier(Workgroup& group) {
    for (Wave& wave : group.waves)
        for (const LdsRaceGroup::Open& access : group.shadow->lds_race.open[wave.id])
            record(wave, *access.op, access.address, access.lanes, access.bytes, access.kind);
}

}  // namespace lds_race
}  // namespace emu::checks
