// SPDX-License-Identifier: MIT
// One record a dword of memory that a launch touches: the workgroup that wrote it last and the one that read it last, and
// which of its bytes.
//
// Two workgroups are ordered if the first one released after its access and the second one acquired after that: an atomic
// (or a cache write-back, buffer_wbl2) releases, a returning atomic (or buffer_inv) acquires. Which variable they met at is
// not followed, so a kernel that synchronises at the wrong place may pass; one that does not synchronise does not. Of many
// readers only the last is known. A dword of which two workgroups write different bytes is left alone from then on.
#include "global_race.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "../memory.h"
#include "shadow.h"

namespace emu::checks {
namespace {

constexpr u64 kPageBytes = 4096;
constexpr size_t kShards = 64;

struct Side {
    u64 group = 0;              // linear id + 1; 0: nobody
    u64 time = 0;
    u32 op = 0;
    u8 bytes = 0;               // of the dword, one bit each
    bool atomic = false;
};

struct Cell {
    Side writer, reader;
    bool shared = false;        // by bytes: not followed any more
};

using Page = std::array<Cell, kPageBytes / 4>;

}  // namespace

struct GlobalShadow {
    struct Shard {
        std::mutex mutex;
        std::unordered_map<u64, std::unique_ptr<Page>> pages;
    };
    std::array<Shard, kShards> shards;
    std::atomic<u64> clock{1};
    std::mutex mutex;           // of releases
    std::unordered_map<u64, std::vector<u64>> releases;     // group + 1 -> times, ascending

    bool released_between(u64 group, u64 after, u64 before) {
        const std::lock_guard lock(mutex);
        const auto found = releases.find(group);
        if (found == releases.end()) return false;
        const auto first = std::upper_bound(found->second.begin(), found->second.end(), after);
        return first != found->second.end() && *first < before;
    }
};

namespace {

std::string hex(u64 value) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%" PRIx64, value);
    return text;
}

std::string group_text(const Launch& launch, u64 linear) {
    const Dim& grid = launch.grid;
    return "(" + std::to_string(linear % grid.x) + "," + std::to_string(linear / grid.x % grid.y) + "," +
           std::to_string(linear / grid.x / grid.y) + ")";
}

struct Conflict {
    int lane = -1;
    u64 address = 0;
    Side other;
    bool other_wrote = false;
};

bool races(GlobalShadow& shadow, const Side& other, const Side& mine, u64 acquired) {
    if (!other.group || other.group == mine.group || !(other.bytes & mine.bytes) || (other.atomic && mine.atomic)) return false;
    return !shadow.released_between(other.group, other.time, acquired);
}

// Returns true if this access races with what is recorded, and records it.
bool visit(GlobalShadow& shadow, Cell& cell, const Side& mine, bool write, u64 acquired, Conflict& conflict) {
    if (cell.shared) return false;
    bool found = false;
    if (races(shadow, cell.writer, mine, acquired)) {
        conflict.other = cell.writer;
        conflict.other_wrote = found = true;
    } else if (write && races(shadow, cell.reader, mine, acquired)) {
        conflict.other = cell.reader;
        conflict.other_wrote = false;
        found = true;
    }
    Side& side = write ? cell.writer : cell.reader;
    if (write && side.group && side.group != mine.group && !(side.bytes & mine.bytes)) cell.shared = true;
    const u8 bytes = side.group == mine.group ? side.bytes | mine.bytes : mine.bytes;
    side = mine;
    side.bytes = bytes;
    return found;
}

}  // namespace

void begin(GlobalRaceLaunch& state, const Launch&) { state.shadow = std::make_shared<GlobalShadow>(); }

void begin(GlobalRaceGroup& state, const Workgroup&) { state.acquired = 0; }

namespace global_race {

void on_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (!lanes || w.group->launch->grid.volume() == 1) return;
    GlobalShadow& shadow = *launch_of(w).global_race.shadow;
    const u64 acquired = w.group->shadow->global_race.acquired;
    Side mine{w.group->linear + 1, shadow.clock.fetch_add(1, std::memory_order_relaxed), op.index, 0, kind == AccessKind::Atomic};
    const bool write = kind != AccessKind::Read;
    Conflict conflict;
    GlobalShadow::Shard* shard = nullptr;
    Page* page = nullptr;
    u64 page_number = 0;
    std::unique_lock<std::mutex> lock;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        u64 at = address[lane];
        const u64 end = at + bytes;
        while (at < end) {
            if (!page || at / kPageBytes != page_number) {
                page_number = at / kPageBytes;
                GlobalShadow::Shard& next = shadow.shards[page_number % kShards];
                if (&next != shard) {
                    if (lock.owns_lock()) lock.unlock();
                    lock = std::unique_lock(next.mutex);
                    shard = &next;
                }
                auto& place = next.pages[page_number];
                if (!place) place = std::make_unique<Page>();
                page = place.get();
            }
            const u64 dword = at & ~u64{3}, stop = std::min(end, dword + 4);
            mine.bytes = static_cast<u8>(((1u << (stop - at)) - 1) << (at - dword));
            Conflict here;
            if (visit(shadow, (*page)[dword % kPageBytes / 4], mine, write, acquired, here) && conflict.lane < 0) {
                conflict = here;
                conflict.lane = lane;
                conflict.address = at;
            }
            at = stop;
        }
    }
    if (lock.owns_lock()) lock.unlock();
    if (conflict.lane < 0) return;
    const Launch& launch = *w.group->launch;
    const Allocation* allocation = find_allocation(conflict.address);
    report(w, op, kGlobalRace, conflict.lane,
           std::string(write ? "write" : "read") + " at " + hex(conflict.address) + ", which workgroup " +
               group_text(launch, conflict.other.group - 1) + (conflict.other_wrote ? " wrote" : " read") +
               " in the same launch, and nothing orders the two",
           allocation ? std::to_string(conflict.address - allocation->begin) + " bytes into '" + allocation->name + "'" : "",
           "the other: " + where(launch, conflict.other.op));
}

void after(Wave& w, const Op& op) {
    if (!op.inst.row) return;
    const Format format = op.inst.row->format;
    const bool atomic = (op.inst.row->flags & kAtomic) && format != Format::Ds;
    const bool release = atomic || !std::strcmp(op.inst.row->name, "buffer_wbl2");
    const bool acquire = (atomic && op.inst.sc0) || !std::strcmp(op.inst.row->name, "buffer_inv");
    if (!release && !acquire) return;
    GlobalShadow& shadow = *launch_of(w).global_race.shadow;
    const u64 now = shadow.clock.fetch_add(2, std::memory_order_relaxed);
    if (release) {
        const std::lock_guard lock(shadow.mutex);
        auto& times = shadow.releases[w.group->linear + 1];
        times.insert(std::upper_bound(times.begin(), times.end(), now), now);
    }
    if (acquire) w.group->shadow->global_race.acquired = now + 1;
}

}  // namespace global_race
}  // namespace emu::checks
