// SPDX-License-Identifier: MIT
// Parts of MLA decode that the blocks which computed them merge themselves: how they lie in the workspace, and the numbers by
// which blocks know that all parts of a request are there.
//
// A part has, for every 16 rows of its request (a strip), 32 units of 16 columns and then a note for each row and half of the
// columns: the reference of the row's exponents, in powers of two, and the sum of the weights that the warpgroup with this half has
// seen. Codes are accumulators rounded to bf16, not yet divided by any sum: half the bytes of fp32, and the rounding of the output once
// more. Within a unit they lie as a warp's accumulators do (ptx/wgmma.h), 16 bytes a lane, so that nothing is exchanged between
// lanes to store them. A row without keys has the reference -inf, and codes of zero.
//
// Blocks count themselves in one number for each row tile of a request that is cut, in four fields of eight bits:
//   started   blocks with a part that run or have run     done   blocks that do not look at the number any more
//   stored    blocks whose part is in the workspace       left   blocks that did not wait
// A block that has stored its last part waits for the other parts of its requests, and merges its share of the rows. It waits only
// while every block it waits for has started, and hence will store its part whatever happens: no launch can block itself or another
// one, however few multiprocessors it gets. Where one has not started, the block leaves; who finds all parts stored, at least the one
// that stored the last, then sees that someone left and merges all shares. All do the same sums in the same order, so results do not
// depend on which way it went. The last one done sets the number back to 0.
//
// The workspace comes with any contents, so the numbers lie in memory of the module, zero from the start: one set for each workspace
// that was ever used, since calls at the same time must have different ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ptx/atomic.h"

namespace mla {

constexpr int kCountSets = 512, kCountsOfSet = 160;  // workspaces, blocks of a launch (fewer than 256, see SplitCount)
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

struct LatentSplits {
    static constexpr int kTileStrips = 4;                // of a row tile; a strip has 16 rows
    static constexpr int kUnits = 32, kUnitBytes = 512;  // of a strip; a unit has 16 columns
    static constexpr int kNotes = kUnits * kUnitBytes;   // where the notes begin: [2 halves][16 rows] float2
    static constexpr int kStripBytes = kNotes + 2 * 16 * 8;

    uint8_t* start;
    int strips;     // of a request
    int count_set;  // which of part_counts

    __device__ __forceinline__ uint8_t* part(int part) const {
        return start + static_cast<size_t>(part) * (strips * kStripBytes);
    }
    __device__ __forceinline__ uint8_t* strip(int part, int strip) const {
        return this->part(part) + strip * kStripBytes;
    }
    /// Of the rows of a strip, by the warpgroup that has this half of the columns.
    static __device__ __forceinline__ float2* notes(uint8_t* strip, int half) {
        return reinterpret_cast<float2*>(strip + kNotes) + half * 16;
    }
};

/// What a block merges.
enum MergedShares { kNoShare, kOwnShare, kAllShares };

/// The number of one row tile of a request.
struct SplitCount {
    static constexpr unsigned kStarted = 1u, kStored = 1u << 8, kDone = 1u << 16, kLeft = 1u << 24;

    unsigned* at;

    static __device__ __forceinline__ int started(unsigned word) { return static_cast<int>(word & 255); }
    static __device__ __forceinline__ int stored(unsigned word) { return static_cast<int>(word >> 8 & 255); }
    static __device__ __forceinline__ int done(unsigned word) { return static_cast<int>(word >> 16 & 255); }

    __device__ __forceinline__ void start() const { fetch_add(at, kStarted); }

    /// One thread, after all have stored the part.
    __device__ __forceinline__ void store() const {
        fence_between();
        fetch_add(at, kStored);
    }

    /// Wait for all `parts`, or leave; the same thread, once. `last` goes to `end` when the shares are merged.
    __device__ __forceinline__ MergedShares wait(int parts, unsigned& last) const {
        unsigned now;
        do now = look_at(at);
        while (stored(now) < parts && started(now) == parts);
        const bool there = stored(now) == parts;
        last = fetch_add(at, there ? kDone : kDone + kLeft);
        // Who left before the last part was stored is in the number as of then.
        if (there) return now < kLeft ? kOwnShare : kAllShares;
        if (stored(last) < parts) return kNoShare;
        fence_between();
        return kOwnShare;
    }
    __device__ __forceinline__ void end(int parts, unsigned last) const {
        if (done(last) == parts - 1) *at = 0;
    }
};

}  // namespace mla
