// SPDX-License-Identifier: MIT
// Parts of MLA decode that the blocks which computed them merge themselves: how they lie in the workspace, and the numbers by
// which blocks know that all parts of a request are there.
//
// A part has, for every 16 rows of its request (a strip), 32 units of 16 columns and then a pair of numbers for each row and half of
// the columns: its LSE, and what a code of the row stands for. Codes are fp16, the largest of a row's half being kMostCode: 11 bits
// each, and half the bytes of fp32. Within a unit they lie as a warp's accumulators do (ptx/wgmma_16bit.h), 16 bytes a lane, so that
// nothing is exchanged between lanes to store them. A row without keys has an LSE of -inf; its codes need not have been written.
//
// Blocks count themselves in one number for each row tile of a request that is cut, in four fields of eight bits:
//   started   blocks with a part that run or have run     done   blocks that do not look at the number any more
//   stored    blocks whose part is in the workspace       left   blocks that did not wait
// A block that has stored its last part waits for the other parts of its requests, and merges its share of the rows. It waits only
// while every block it waits for has started, and hence will store its part whatever happens: no launch can block itself or another
// one, however few multiprocessors it gets. Where one has not started, the block leaves; whoever stores the last part then finds that
// someone left and merges all shares. All do the same sums in the same order, so results do not depend on which way it went.
// The last one done sets the number back to 0.
//
// The workspace comes with any contents, so the numbers lie in memory of the module, zero from the start: one set for each workspace
// that was ever used, since calls at the same time must have different ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ptx/fetch_add.h"
#include "ptx/turn.h"

constexpr int kCountSets = 512, kCountsOfSet = 160;   // workspaces, blocks of a launch (fewer than 256, see PartCount)
static __device__ unsigned part_counts[kCountSets][kCountsOfSet];

/// The counts of this workspace; -1 where so many others have been used that none are left.
inline int part_count_set(const void* workspace) {
    static std::atomic<const void*> owners[kCountSets];
    const uint64_t mixed = reinterpret_cast<uintptr_t>(workspace) / 256 * 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < kCountSets; ++i) {
        const int at = static_cast<int>((mixed >> 40) + i) % kCountSets;
        const void* owner = nullptr;
        if (owners[at].compare_exchange_strong(owner, workspace) || owner == workspace) return at;
    }
    return -1;
}

struct LatentParts {
    static constexpr int kUnits = 32, kUnitBytes = 512;   // of a strip; a unit is 16 rows, 16 columns
    static constexpr int kNotes = kUnits * kUnitBytes;    // where the pairs begin: [2 halves][16 rows] float2
    static constexpr int kStripBytes = kNotes + 2 * 16 * 8;
    static constexpr float kMostCode = 16384.0f;
    static constexpr float kLeastRange = 0x1p-100f, kMostRange = 0x1p127f;   // of a row's largest, so that it can be divided by

    uint8_t* start;
    int strips;      // of a request
    int count_set;   // which of part_counts

    __device__ __forceinline__ uint8_t* part(int part) const { return start + static_cast<size_t>(part) * (strips * kStripBytes); }
    __device__ __forceinline__ uint8_t* strip(int part, int strip) const { return this->part(part) + strip * kStripBytes; }
    __device__ __forceinline__ float2* notes(int part, int strip, int half) const {
        return reinterpret_cast<float2*>(this->strip(part, strip) + kNotes) + half * 16;
    }
};

/// The number of one row tile of a request.
struct PartCount {
    static constexpr unsigned kStarted = 1u, kStored = 1u << 8, kDone = 1u << 16, kLeft = 1u << 24;

    unsigned* at;

    static __device__ __forceinline__ int started(unsigned word) { return static_cast<int>(word & 255); }
    static __device__ __forceinline__ int stored(unsigned word) { return static_cast<int>(word >> 8 & 255); }
    static __device__ __forceinline__ int done(unsigned word) { return static_cast<int>(word >> 16 & 255); }

    __device__ __forceinline__ void start() const { fetch_add(at, kStarted); }

    /// One thread, after all have stored the part. Returns what the number was before.
    __device__ __forceinline__ unsigned store() const {
        fence_between();
        return fetch_add(at, kStored);
    }

    /// Wait for all `parts`, or leave; the same thread, once. `before` is what store returned. `all`: this block merges all
    /// shares. Returns whether it merges any; `last` goes to `end` when it has.
    __device__ __forceinline__ bool wait(int parts, unsigned before, bool& all, unsigned& last) const {
        all = before >= kLeft;   // before the last part was stored; counts only where that was this block's
        if (stored(before) == parts - 1) {
            fence_between();
            last = fetch_add(at, kDone);
            return true;
        }
        all = false;
        unsigned now;
        do now = look_at(at);
        while (stored(now) < parts && started(now) == parts);
        const bool there = stored(now) == parts;
        last = fetch_add(at, there ? kDone : kDone + kLeft);
        if (there) return true;
        fence_between();
        return stored(last) == parts;
    }
    __device__ __forceinline__ void end(int parts, unsigned last) const {
        if (done(last) == parts - 1) *at = 0;
    }
};
