// SPDX-License-Identifier: MIT
// One record a dword of LDS (or a byte, in programs that access bytes): who wrote it and who read it since the last barrier.
//
// A wave's own LDS instructions are done in order, so only different waves race. An access that was issued but not waited for
// when its wave reaches the barrier may be done after it: such accesses count as made after the barrier, too. Loads from memory
// to LDS are done some time before the s_waitcnt vmcnt that waits for them, whatever the wave does meanwhile.
#include <algorithm>
#include <cstring>

#include "runs.h"
#include "shadow.h"

namespace emu::checks {
namespace {

using Cells = LdsRaceGroup::Cells;
using Open = LdsRaceGroup::Open;
using Queue = LdsRaceGroup::Queue;
constexpr size_t kMostOpen = 64;  // more than either counter counts

// Barriers passed plus one in bits 0-30, 31: written by atomics only, one bit a reading wave in 32-47, a writing one in 48-63.
// Several waves may have written the same value.
constexpr int kReaders = 32, kWriters = 48;
constexpr u64 kAtomicWrite = u64{1} << 31, kEpoch = kAtomicWrite - 1;
constexpr u64 kReadersMask = u64{0xffff} << kReaders, kWritersMask = u64{0xffff} << kWriters;

struct Access {
    u64 epoch, reader, writer;  // in their places
    bool write, atomic;
    u32 op;
};

enum class Verdict { Fine, Race, Doubtful };

u64 fresh_state(const Access& access) {
    return access.epoch | (access.write ? access.writer | (access.atomic ? kAtomicWrite : 0) : access.reader);
}

void begin_epoch(Cells& cells, size_t cell, const Access& access) {
    cells.state[cell] = fresh_state(access);
    (access.write ? cells.write_op : cells.read_op)[cell] = access.op;
}

/// Whether it races with what the cell has seen. If it does not, the cell has seen it now.
Verdict touch(Cells& cells, size_t cell, const Access& access) {
    const u64 state = cells.state[cell];
    if ((state & kEpoch) != access.epoch) {
        begin_epoch(cells, cell, access);
        return Verdict::Fine;
    }
    const u64 others = state & kWritersMask & ~access.writer;
    if (!access.write) {
        if (others && !(state & access.writer)) return Verdict::Race;
        if (state & access.reader) return Verdict::Fine;
        cells.state[cell] = state | access.reader;
        cells.read_op[cell] = access.op;
        return Verdict::Fine;
    }
    if (state & kReadersMask & ~access.reader) return Verdict::Race;
    const bool atomics = access.atomic && (state & kAtomicWrite);
    if (others && !atomics) return access.atomic || state & kAtomicWrite ? Verdict::Race : Verdict::Doubtful;
    const bool atomic = access.atomic && (atomics || !(state & kWritersMask));
    cells.state[cell] = (state & ~(others | kAtomicWrite)) | access.writer | (atomic ? kAtomicWrite : 0);
    cells.write_op[cell] = access.op;
    return Verdict::Fine;
}

Access access_of(const Wave& w, const Op& op, AccessKind kind) {
    return {u64{w.group->barriers} + 1, u64{1} << (kReaders + w.id), u64{1} << (kWriters + w.id),
            kind != AccessKind::Read,   kind == AccessKind::Atomic,  op.index};
}

void complain(Wave& w, const Op& op, const Access& access, int lane, u32 at, size_t cell) {
    const Cells& cells = w.group->shadow->lds_race.cells;
    if (repeated(w, op, kLdsRace)) return;
    const u64 writers = (cells.state[cell] & kWritersMask & ~access.writer) >> kWriters;
    const u64 readers = (cells.state[cell] & kReadersMask & ~access.reader) >> kReaders;
    const int who = std::countr_zero(writers ? writers : readers);
    report(
        w, op, kLdsRace, lane,
        std::string(access.write ? "write" : "read") + " of LDS byte " + std::to_string(at) + ", which wave " +
            std::to_string(who) + " " + (writers ? "wrote" : "read") + " with no barrier between",
        "", "the other: " + where(*w.group->launch, writers ? cells.write_op[cell] : cells.read_op[cell]));
}

u64 content(const Wave& w, const LdsRaceGroup& state, size_t cell) {
    u64 value = 0;
    std::memcpy(&value, w.group->lds + (cell << state.grain_shift), size_t{1} << state.grain_shift);
    return value;
}

// A read of all lanes, 64 cells at once. Done unless another wave has written to one of them since the barrier: then nothing is,
// and false is the answer.
bool read_all(Cells& cells, const Access& access, const u32* address, u32 offset, u32 shift) {
    alignas(64) u64 words[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) words[lane] = cells.state[(address[lane] + offset) >> shift];
    const u64 mine = access.epoch | access.reader;
    u64v seen;
    std::memcpy(&seen, words, sizeof seen);
    const i64v stale = (seen & kEpoch) != access.epoch;
    if (to_mask(((seen & kWritersMask & ~access.writer) != 0) & ~stale)) return false;
    const u64v now = (seen & ~__builtin_bit_cast(u64v, stale)) | mine;
    const u64 changes = to_mask(now != seen);
    std::memcpy(words, &now, sizeof now);
    for (u64 rest = changes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const size_t cell = (address[lane] + offset) >> shift;
        cells.state[cell] = words[lane];
        cells.read_op[cell] = access.op;
    }
    return true;
}

// A write of all lanes side by side to cells that nobody has touched since the barrier. False, and nothing done: it is none.
bool write_row(LdsRaceGroup& state, const Access& access, const u32* address) {
    const u32 first = address[0], grain = 1u << state.grain_shift;
    u32 differs = 0;
    for (u32 lane = 0; lane < kLanes; ++lane) differs |= address[lane] ^ (first + grain * lane);
    if (differs) return false;
    const size_t cell = first >> state.grain_shift;
    u64v all;
    std::memcpy(&all, &state.cells.state[cell], sizeof all);
    if (to_mask((all & kEpoch) == access.epoch)) return false;
    std::fill_n(state.cells.state.begin() + static_cast<long>(cell), kLanes, fresh_state(access));
    std::fill_n(state.cells.write_op.begin() + static_cast<long>(cell), kLanes, access.op);
    return true;
}

// Most accesses meet cells that no other wave has touched since the barrier, or only read like this one: done here. The lanes
// of all others are returned. Each lane has the one cell that begins `offset` bytes behind its address.
template <bool kWrite>
u64 touch_own(LdsRaceGroup& state, const Access& access, const u32* address, u64 lanes, u32 offset) {
    const u64 mine = kWrite ? access.writer | (access.atomic ? kAtomicWrite : 0) : access.reader;
    const u64 others =
        kWrite ? (kReadersMask & ~access.reader) | kWritersMask | kAtomicWrite : kWritersMask & ~access.writer;
    Cells& cells = state.cells;
    u64 left = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const size_t cell = (address[lane] + offset) >> state.grain_shift;
        const u64 seen = cells.state[cell], met = seen & others;
        if ((seen & kEpoch) != access.epoch) {
            begin_epoch(cells, cell, access);
        } else if (met && (!kWrite || met != mine)) {
            left |= u64{1} << lane;
        } else if (kWrite) {
            cells.state[cell] = seen | mine;
            cells.write_op[cell] = access.op;
        } else if (!(seen & mine)) {
            cells.state[cell] = seen | mine;
            cells.read_op[cell] = access.op;
        }
    }
    return left;
}

// Reads of cells side by side. Done unless another wave has written to one of them since the barrier: then nothing is, and
// false is the answer.
bool read_run(Cells& cells, const Access& access, size_t first, size_t count) {
    // Copies, and places that do not overlap: then the compiler makes vectors of it.
    const u64 epoch = access.epoch, mine = epoch | access.reader, others = kWritersMask & ~access.writer;
    const u32 op = access.op;
    u64* __restrict const state = cells.state.data() + first;
    u32* __restrict const read_op = cells.read_op.data() + first;
    u64 met = 0, missing = 0;
    for (size_t i = 0; i < count; ++i) {
        const u64 current = (state[i] & kEpoch) == epoch ? state[i] : 0;
        met |= current & others;
        missing |= mine & ~current;
    }
    if (met) return false;
    if (!missing) return true;
    for (size_t i = 0; i < count; ++i) {
        const u64 seen = state[i], now = ((seen & kEpoch) == epoch ? seen : 0) | mine;
        read_op[i] = now == seen ? read_op[i] : op;
        state[i] = now;
    }
    return true;
}

/// Lanes that need a closer look.
template <bool kWrite>
u64 touch_cells(LdsRaceGroup& state, const Access& access, const u32* address, u64 lanes, u32 bytes) {
    u64 left = 0;
    for (u32 offset = 0; offset < bytes; offset += 1u << state.grain_shift)
        left |= touch_own<kWrite>(state, access, address, lanes, offset);
    return left;
}

u64 read_quickly(LdsRaceGroup& state, const Access& access, const u32* address, u64 lanes, u32 bytes) {
    constexpr int kMostRuns = 20;  // with more of them there is little side by side
    const u32 shift = state.grain_shift;
    const LaneRuns runs = runs_of(address, lanes, bytes, true);
    u64 left = 0;
    if (std::popcount(runs.starts()) <= kMostRuns) {
        for (u64 rest = runs.starts(); rest; rest &= rest - 1) {
            const int lane = std::countr_zero(rest);
            if (!read_run(
                    state.cells, access, address[lane] >> shift,
                    u64{bytes} * static_cast<u64>(runs.size(lane)) >> shift))
                left |= runs.lanes_of(lane);
        }
        return left ? touch_cells<false>(state, access, address, left, bytes) : 0;
    }
    if (runs.lanes != kAllLanes) return touch_cells<false>(state, access, address, runs.lanes, bytes);
    for (u32 offset = 0; offset < bytes; offset += 1u << shift)
        if (!read_all(state.cells, access, address, offset, shift)) [[unlikely]]
            left |= touch_own<false>(state, access, address, kAllLanes, offset);
    return left;
}

u64 touch_quickly(LdsRaceGroup& state, const Access& access, const u32* address, u64 lanes, u32 bytes) {
    const u32 grain = 1u << state.grain_shift;
    const u32v all = load<u32v>(address);
    const bool askew = __builtin_reduce_or(all) & (grain - 1);
    if (bytes % grain || (askew && to_mask((all & (grain - 1)) != 0) & lanes)) return lanes;
    if (!access.write) return read_quickly(state, access, address, lanes, bytes);
    if (bytes == grain && lanes == kAllLanes && write_row(state, access, address)) return 0;
    return touch_cells<true>(state, access, address, lanes, bytes);
}

void record(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    LdsRaceGroup& state = w.group->shadow->lds_race;
    const Access access = access_of(w, op, kind);
    const u32 shift = state.grain_shift;
    bool said = false;
    for (u64 rest = touch_quickly(state, access, address, lanes, bytes); rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const size_t first = address[lane] >> shift, last = (address[lane] + bytes - 1) >> shift;
        for (size_t i = first; i <= last; ++i) {
            const Verdict verdict = touch(state.cells, i, access);
            if (verdict == Verdict::Fine) [[likely]]
                continue;
            const u32 at = std::max<u32>(address[lane], static_cast<u32>(i << shift));
            if (verdict == Verdict::Doubtful) {
                state.doubts.push_back({static_cast<u32>(i), at, lane, content(w, state, i)});
                continue;
            }
            if (!said) complain(w, op, access, lane, at, i);
            said = true;
            begin_epoch(state.cells, i, access);  // say it once for this pair
        }
    }
}

void resolve_doubts(Wave& w, const Op& op) {
    LdsRaceGroup& state = w.group->shadow->lds_race;
    const Access access = access_of(w, op, AccessKind::Write);
    bool said = false;
    for (const LdsRaceGroup::Doubt& doubt : state.doubts) {
        if (content(w, state, doubt.cell) == doubt.before) {
            state.cells.state[doubt.cell] |= access.writer;
            continue;
        }
        if (!said) complain(w, op, access, doubt.lane, doubt.address, doubt.cell);
        said = true;
        begin_epoch(state.cells, doubt.cell, access);
    }
    state.doubts.clear();
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
    for (const Open& open : queues.vm) {
        int lane = 0;
        if (mine.high <= open.low || open.high <= mine.low ||
            !same_place(open, mine.address, mine.lanes, mine.bytes, lane))
            continue;
        if (repeated(w, op, kLdsRace)) return;
        const u64 behind = queues.vm.issued - open.sequence;
        report(
            w, op, kLdsRace, lane,
            std::string(mine.kind == AccessKind::Read ? "read" : "write") + " of LDS byte " +
                std::to_string(mine.address[lane]) +
                " while the wave's own load from memory to it is under way; s_waitcnt vmcnt(" + std::to_string(behind) +
                ") or less must come between",
            "", "the load: " + where(*w.group->launch, open.op->index));
        return;
    }
}

// [low, high) of all lanes is only asked for beside loads from memory to LDS.
void describe(
    Open& open, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind, u64 sequence, bool range) {
    open.op = &op;
    open.lanes = lanes;
    open.sequence = sequence;
    open.bytes = bytes;
    open.kind = kind;
    store(open.address, load<u32v>(address));
    if (!range) return;
    if (lanes == kAllLanes) {
        const u32v all = load<u32v>(open.address);
        open.low = __builtin_reduce_min(all);
        open.high = __builtin_reduce_max(all) + bytes;
        return;
    }
    open.low = ~u32{0};
    open.high = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        open.low = std::min(open.low, address[std::countr_zero(rest)]);
        open.high = std::max(open.high, address[std::countr_zero(rest)] + bytes);
    }
}

void settle(Queue& queue, u32 left) {
    if (!left) {
        queue.clear();
        queue.any_order = 0;
        return;
    }
    if (queue.any_order) return;
    while (!queue.empty() && queue.begin()->sequence + left <= queue.issued) queue.drop_first();
}

void count(Queue& queue, bool any_order) {
    ++queue.issued;
    if (any_order) queue.any_order = queue.issued;
}

}  // namespace

void begin(LdsRaceGroup& state, const Workgroup& group, u32 grain) {
    state.grain_shift = static_cast<u32>(std::countr_zero(grain));
    state.cells.assign((group.lds_bytes + grain - 1) >> state.grain_shift);
    state.waves.resize(group.waves.size());
    for (LdsRaceGroup::Queues& queues : state.waves) {
        queues.vm.reset();
        queues.lgkm.reset();
    }
    state.doubts.clear();
}

namespace lds_race {

void on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    LdsRaceGroup& state = w.group->shadow->lds_race;
    if (!lanes) return;
    LdsRaceGroup::Queues& queues = state.waves[w.id];
    const bool dma = w.shadow->facts[op.index].what & kLdsDma;
    const bool alone = w.group->waves.size() == 1;
    const bool meets_dma = !dma && !queues.vm.empty();
    if (alone && !dma && !meets_dma) return;
    Queue& queue = dma ? queues.vm : queues.lgkm;
    if (queue.size() == kMostOpen) queue.drop_first();
    Open& open = queue.add();
    describe(open, op, address, lanes, bytes, kind, queue.issued + 1, dma || meets_dma);
    if (meets_dma) check_own_loads(w, op, open);
    if (!alone) record(w, op, address, lanes, bytes, kind);
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
    if (!w.group->shadow->lds_race.doubts.empty()) resolve_doubts(w, op);
    if (what & kCountsVm) count(queues.vm, what & kAnyOrder);
    if (what & kCountsLgkm) count(queues.lgkm, what & kAnyOrder);
}

// Whatever these raced with before the barrier was said there.
void at_barrier(Workgroup& group) {
    if (group.waves.size() == 1) return;
    LdsRaceGroup& state = group.shadow->lds_race;
    for (Wave& wave : group.waves) {
        for (const Queue* queue : {&state.waves[wave.id].vm, &state.waves[wave.id].lgkm}) {
            for (const Open& open : *queue) {
                const Access access = access_of(wave, *open.op, open.kind);
                for (u64 rest = open.lanes; rest; rest &= rest - 1) {
                    const u32 at = open.address[std::countr_zero(rest)];
                    for (size_t i = at >> state.grain_shift; i <= (at + open.bytes - 1) >> state.grain_shift; ++i)
                        if (touch(state.cells, i, access) != Verdict::Fine) begin_epoch(state.cells, i, access);
                }
            }
        }
    }
}

}  // namespace lds_race
}  // namespace emu::checks
