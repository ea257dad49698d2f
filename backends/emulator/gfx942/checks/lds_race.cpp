// SPDX-License-Identifier: MIT
// One record a dword of LDS (or a byte, in programs that access bytes): who wrote it and who read it since the last barrier.
//
// A wave's own LDS instructions are done in order, so only different waves race. An access that was issued but not waited for
// when its wave reaches the barrier may be done after it: such accesses count as made after the barrier, too. Loads from memory
// to LDS are done some time before the s_waitcnt vmcnt that waits for them, whatever the wave does meanwhile.
#include <algorithm>

#include "shadow.h"

namespace emu::checks {
namespace {

using Cell = LdsRaceGroup::Cell;
using Open = LdsRaceGroup::Open;
using Queue = LdsRaceGroup::Queue;
constexpr size_t kMostOpen = 64;        // more than either counter counts

// Barriers passed plus one in bits 0-31, one bit a reading wave in 32-47, the writing wave plus one in 48-55, 56: atomic.
constexpr int kReaders = 32, kWriter = 48;
constexpr u64 kAtomicWrite = u64{1} << 56, kWriterMask = u64{255} << kWriter, kReadersMask = u64{0xffff} << kReaders;

struct Access {
    u64 epoch, reader, writer;          // in their places
    bool write, atomic;
    u32 op;
};

/// True if it races with what the cell has seen. Otherwise the cell has seen it now.
inline bool touch(Cell& cell, const Access& access) {
    u64 state = cell.state;
    if (static_cast<u32>(state) != access.epoch) {
        cell.state = access.epoch | (access.write ? access.writer | (access.atomic ? kAtomicWrite : 0) : access.reader);
        (access.write ? cell.write_op : cell.read_op) = access.op;
        return false;
    }
    const u64 writer = state & kWriterMask;
    if (writer && writer != access.writer && !(access.atomic && state & kAtomicWrite)) return true;
    if (!access.write) {
        if (state & access.reader) return false;
        cell.state = state | access.reader;
        cell.read_op = access.op;
        return false;
    }
    if (state & kReadersMask & ~access.reader) return true;
    cell.state = (state & ~(kWriterMask | kAtomicWrite)) | access.writer | (access.atomic ? kAtomicWrite : 0);
    cell.write_op = access.op;
    return false;
}

void complain(Wave& w, const Op& op, const Access& access, int lane, u32 at, const Cell& cell) {
    const u64 writer = cell.state & kWriterMask;
    const bool other_wrote = writer && writer != access.writer;
    const u64 readers = (cell.state & kReadersMask & ~access.reader) >> kReaders;
    const int who = other_wrote ? static_cast<int>(writer >> kWriter) - 1 : std::countr_zero(readers);
    report(w, op, kLdsRace, lane,
           std::string(access.write ? "write" : "read") + " of LDS byte " + std::to_string(at) + ", which wave " +
               std::to_string(who) + " " + (other_wrote ? "wrote" : "read") + " with no barrier between",
           "", "the other: " + where(*w.group->launch, other_wrote ? cell.write_op : cell.read_op));
}

void record(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    Workgroup& group = *w.group;
    LdsRaceGroup& state = group.shadow->lds_race;
    const Access access{u64{group.barriers} + 1, u64{1} << (kReaders + w.id), u64{w.id + 1} << kWriter,
                        kind != AccessKind::Read, kind == AccessKind::Atomic, op.index};
    const u32 shift = state.grain_shift;
    Cell* const cells = state.cells.data();
    bool said = false;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const size_t first = address[lane] >> shift, last = std::min<size_t>((u64{address[lane]} + bytes - 1) >> shift, state.cells.size() - 1);
        for (size_t i = first; i <= last; ++i) {
            if (!touch(cells[i], access)) [[likely]] continue;
            if (!said) complain(w, op, access, lane, std::max<u32>(address[lane], static_cast<u32>(i << shift)), cells[i]);
            said = true;
            cells[i].state = 0;         // say it once for this pair
            touch(cells[i], access);
        }
    }
}

bool same_place(const Open& open, const u32* address, u64 lanes, u32 bytes, int& lane) {
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        lane = std::countr_zero(rest);
        for (u64 others = open.lanes; others; others &= others - 1) {
            const u32 at = open.address[std::countr_zero(others)];
            if (address[lane] < at + open.bytes && at < address[lane] + bytes) return true;
        }
    }
    return false;
}

void check_own_loads(Wave& w, const Op& op, const Open& mine) {
    const LdsRaceGroup::Queues& queues = w.group->shadow->lds_race.waves[w.id];
    for (const Open& open : queues.vm.open) {
        int lane = 0;
        if (mine.high <= open.low || open.high <= mine.low || !same_place(open, mine.address, mine.lanes, mine.bytes, lane)) continue;
        const u64 behind = queues.vm.issued - open.sequence;
        report(w, op, kLdsRace, lane,
               std::string(mine.kind == AccessKind::Read ? "read" : "write") + " of LDS byte " + std::to_string(mine.address[lane]) +
                   " while the wave's own load from memory to it is under way; s_waitcnt vmcnt(" + std::to_string(behind) +
                   ") or less must come between",
               "", "the load: " + where(*w.group->launch, open.op->index));
        return;
    }
}

Open describe(const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind, u64 sequence) {
    Open open{&op, lanes, sequence, bytes, ~u32{0}, 0, kind, {}};
    std::copy(address, address + kLanes, open.address);
    if (lanes == kAllLanes) {
        const u32v all = load<u32v>(open.address);
        open.low = __builtin_reduce_min(all);
        open.high = __builtin_reduce_max(all) + bytes;
        return open;
    }
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        open.low = std::min(open.low, address[std::countr_zero(rest)]);
        open.high = std::max(open.high, address[std::countr_zero(rest)] + bytes);
    }
    return open;
}

void settle(Queue& queue, u32 left) {
    if (!left) {
        queue.open.clear();
        queue.any_order = 0;
        return;
    }
    if (queue.any_order) return;
    const auto waiting = std::find_if(queue.open.begin(), queue.open.end(), [&](const Open& open) { return open.sequence + left > queue.issued; });
    queue.open.erase(queue.open.begin(), waiting);
}

void count(Queue& queue, bool any_order) {
    ++queue.issued;
    if (any_order) queue.any_order = queue.issued;
}

}  // namespace

void begin(LdsRaceGroup& state, const Workgroup& group, u32 grain) {
    state.grain_shift = static_cast<u32>(std::countr_zero(grain));
    state.cells.resize((group.lds_bytes + grain - 1) >> state.grain_shift);
    state.waves.resize(group.waves.size());
}

namespace lds_race {

void on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    LdsRaceGroup& state = w.group->shadow->lds_race;
    lanes = lanes_within(address, lanes, bytes, w.group->lds_bytes);
    if (!lanes) return;
    LdsRaceGroup::Queues& queues = state.waves[w.id];
    const bool dma = w.shadow->facts[op.index].what & kLdsDma;
    const bool alone = w.group->waves.size() == 1;
    if (alone && !dma && queues.vm.open.empty()) return;
    Queue& queue = dma ? queues.vm : queues.lgkm;
    const Open open = describe(op, address, lanes, bytes, kind, queue.issued + 1);
    if (!dma && !queues.vm.open.empty()) check_own_loads(w, op, open);
    if (!alone) record(w, op, address, lanes, bytes, kind);
    if (queue.open.size() == kMostOpen) queue.open.erase(queue.open.begin());
    queue.open.push_back(open);
}

void before(Wave& w, const Op& op) {
    const Facts& facts = w.shadow->facts[op.index];
    LdsRaceGroup::Queues& queues = w.group->shadow->lds_race.waves[w.id];
    if (facts.wait_vm != kNoWait) settle(queues.vm, facts.wait_vm);
    if (facts.wait_lgkm != kNoWait) settle(queues.lgkm, facts.wait_lgkm);
}

void after(Wave& w, const Op& op) {
    const u16 what = w.shadow->facts[op.index].what;
    LdsRaceGroup::Queues& queues = w.group->shadow->lds_race.waves[w.id];
    if (what & kCountsVm) count(queues.vm, what & kAnyOrder);
    if (what & kCountsLgkm) count(queues.lgkm, what & kAnyOrder);
}

void at_barrier(Workgroup& group) {
    if (group.waves.size() == 1) return;
    for (Wave& wave : group.waves) {
        const LdsRaceGroup::Queues& queues = group.shadow->lds_race.waves[wave.id];
        for (const Queue* queue : {&queues.vm, &queues.lgkm})
            for (const Open& open : queue->open) record(wave, *open.op, open.address, open.lanes, open.bytes, open.kind);
    }
}

}  // namespace lds_race
}  // namespace emu::checks
