// SPDX-License-Identifier: MIT
// One instance of the Hopper attention backward: its tile, its warps, where everything lies in shared memory, and which
// queries a tile of keys meets in which order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "ptx/mbarrier.h"
#include "tile/wgmma_shape.h"

/// Two key warpgroups with 64 keys each, one warpgroup for dQ, and one of which three threads load; kQueries at a
/// time in a ring of kStages tiles of Q and of dO.
///
/// kBulk: dQ is added by TMA from shared memory; otherwise by each thread from its registers.
template <class Element_, int kHeadDim_, int kQueries_, int kStages_, bool kBulk_>
struct BackwardShape {
    using Element = Element_;
    static constexpr bool kBulk = kBulk_;
    static constexpr int kHeadDim = kHeadDim_, kQueries = kQueries_, kStages = kStages_;
    static constexpr int kGroups = 2, kKeys = 64 * kGroups, kSlices = kQueries / 64;
    static constexpr int kKeyWarps = 4 * kGroups, kQueryWarps = 4;
    static constexpr int kThreads = 32 * (kKeyWarps + kQueryWarps) + 128;
    // What launch bounds give 512 threads is 128 each.
    static constexpr int kKeyRegisters = 208, kQueryRegisters = 64, kLoadRegisters = 32;

    // Tiles are [kHeadDim / 64][rows] of 128 bytes, dS is [keys / 64][queries], all in TMA's 128-byte swizzle.
    static constexpr int kKeyBytes = kKeys * kHeadDim * 2, kQueryBytes = kQueries * kHeadDim * 2;
    static constexpr int kKeyPitch = kKeys * 128, kQueryPitch = kQueries * 128;   // between columns of 64
    static constexpr int kGradientStages = 2, kGradientBytes = kQueries * kKeys * 2;   // of dS
    static constexpr int kNumberBytes = kQueries * 4;
    static constexpr int kParts = kSlices * kHeadDim / 64, kPartBytes = 64 * 64 * 4;   // of dQ in fp32: 64 x 64 at a time
    static constexpr int kSumBytes = kBulk ? 2 * kPartBytes : 0;
    static constexpr int kValuesAt = kKeyBytes, kQueriesAt = 2 * kKeyBytes, kOutAt = kQueriesAt + kStages * kQueryBytes;
    static constexpr int kGradientsAt = kOutAt + kStages * kQueryBytes;
    static constexpr int kSumsAt = kGradientsAt + kGradientStages * kGradientBytes;
    static constexpr int kShiftsAt = kSumsAt + kSumBytes;
    static constexpr int kDeltasAt = kShiftsAt + kStages * kNumberBytes;
    static constexpr int kBoardAt = kDeltasAt + kStages * kNumberBytes;
    static constexpr int kBarriersAt = kBoardAt + 2 * 16;
    static constexpr int kSharedBytes = kBarriersAt + (8 + 4 * kStages + 2 * kGradientStages) * 8;

    static_assert(kHeadDim == 64 || kHeadDim == 128, "what kernel.h offers");
    static_assert(kQueries == 64 || kQueries == 128, "dQ is multiplied 64 queries at a time, sums are padded to 128");
    static_assert(kParts == 2, "parts of dQ alternate between two places");
    static_assert(kGroups * kKeyRegisters + kQueryRegisters + kLoadRegisters <= 4 * 128, "a wait for ever");
    static_assert(kSharedBytes <= 227 * 1024, "what a block can have");
};

/// What the kernels need beside the tensor maps. Query rows are padded to `rows`, a multiple of 128, in what the workspace
/// holds.
struct BackwardProblem {
    float* shifts;   // [batch, heads, rows]: lse * log2(e), or +inf for a row that sees no key or does not exist
    float* deltas;   // [batch, heads, rows]: rowsum(dout * o)
    float* sums;     // [places][rows / 64][head_dim / 64][4][8][32][4]: dq in fp32, as the accumulators of 4 warps
    int* turns;      // [batch, heads, rows / 64]: how many key tiles were added to these queries, where the order is fixed
    int* next;       // the first task that nobody has taken
    int* added;      // [batch, key_heads]: tiles of keys whose part of dq is in the sums
    int* cleared;    // [batch, key_heads]: tasks that have written dq and left zeros in the sums
    uint8_t* dq;     // [batch, queries, heads, head_dim]
    uint8_t* dk;     // [batch, keys, key_heads, head_dim]
    uint8_t* dv;
    int batch, queries, keys, heads, key_heads, group;   // group: query heads of a key head
    int rows;
    bool causal;
    float softmax_scale, scale;   // scale: softmax_scale * log2(e)
    int tiles;     // of keys, of one head
    int section;   // key heads (of all batches) whose tiles are taken together, so that what they read stays in L2
    int tasks, section_tasks;   // in all and of a section, see find_task

    int kept;      // sections whose sums have a place at a time
    int pieces;    // tasks that write dq of one key head, 128 query rows each; 0 if a kernel of its own writes it

    __host__ __device__ int sections() const { return ceil_div(batch * key_heads, section); }
    /// Where the sums of a query head are: batch * heads + head.
    __device__ __forceinline__ int place(int head) const {
        const int key_head = head / group;
        return (key_head / section % kept * section + key_head % section) * group + head % group;
    }
};

/// A task: a tile of keys and the tiles of queries it meets, [first, last], of each of the group's heads; or, with a negative
/// number, 128 rows of dq to be written: tile `first` of query head `last`.
struct KeyTile {
    int head;          // batch * key_heads + key head; negative: no more work
    int number;        // of the tile among the head's
    int first, last;

    /// How many steps the tile takes.
    __device__ __forceinline__ int steps(const BackwardProblem& p) const {
        return number < 0 ? 0 : max(0, last - first + 1) * p.group;
    }
};

/// Task `task`. Section by section: the tiles of its keys, then dq of the section before, whose sums should be complete by
/// then. Tasks that only wait for earlier ones cannot lock each other out. Returns false for one that does not exist.
__device__ __forceinline__ bool find_task(KeyTile& t, const BackwardProblem& p, int task, int queries, int keys) {
    int section = task / p.section_tasks;
    int rest = task - section * p.section_tasks - p.section * p.tiles;
    const bool finish = rest >= 0;
    section -= finish;
    if (!finish) rest += p.section * p.tiles;
    const int first_head = section * p.section, heads = min(p.section, p.batch * p.key_heads - first_head);
    if (section < 0 || heads <= 0) return false;
    // Causal tiles near the beginning are seen by most queries: of the heads of a section, those come first.
    const int divisor = finish ? p.rows / 128 : p.causal ? heads : p.tiles;
    const int quotient = rest / divisor, remainder = rest - quotient * divisor;
    if (finish) {
        t.last = first_head * p.group + quotient;
        t.head = t.last / p.group;
        t.number = -1;
        t.first = remainder;
        return t.head < first_head + heads;
    }
    t.head = first_head + (p.causal ? remainder : quotient);
    t.number = p.causal ? quotient : remainder;
    // Causal: query i sees keys j <= i + p.keys - p.queries.
    t.first = p.causal ? max(0, t.number * keys - (p.keys - p.queries)) / queries : 0;
    t.last = ceil_div(p.queries, queries) - 1;
    return rest < heads * p.tiles;
}

/// The steps of a key tile: the tiles of queries of one head from the last to the first, then those of the group's next head.
/// kStaggered begins elsewhere, in a place of the key tile's own, and goes around, so that blocks add to different sums.
template <bool kStaggered>
struct QueryWalk {
    int head, tile, begin;   // head: batch * heads + query head

    __device__ __forceinline__ QueryWalk(const BackwardProblem& p, const KeyTile& t)
        : head(t.head * p.group), tile(t.last), begin(t.last) {
        if (kStaggered) begin = tile = t.first + static_cast<int>(
            static_cast<long long>(t.number) * (t.last - t.first + 1) / p.tiles);
    }
    __device__ __forceinline__ void next(const KeyTile& t) {
        tile = tile == t.first ? t.last : tile - 1;
        head += tile == begin;
    }
};

/// A place in a ring of two, in one register.
struct RingOfTwo {
    int uses = 0;

    __device__ __forceinline__ int stage() const { return uses & 1; }
    __device__ __forceinline__ uint32_t parity() const { return uses >> 1 & 1; }
    __device__ __forceinline__ void advance() { ++uses; }
};

/// Addresses in one block's shared memory.
template <class Shape>
struct BackwardMemory {
    uint8_t* start;
    uint32_t address;

    __device__ __forceinline__ uint32_t keys() const { return address; }
    __device__ __forceinline__ uint32_t values() const { return address + Shape::kValuesAt; }
    __device__ __forceinline__ uint32_t queries(int stage) const {
        return address + Shape::kQueriesAt + stage * Shape::kQueryBytes;
    }
    __device__ __forceinline__ uint32_t out(int stage) const { return address + Shape::kOutAt + stage * Shape::kQueryBytes; }
    __device__ __forceinline__ uint32_t gradients(int stage) const {
        return address + Shape::kGradientsAt + stage * Shape::kGradientBytes;
    }
    /// Where a warp of dQ puts a part of its rows for TMA to add: [8][32][4] numbers.
    __device__ __forceinline__ uint32_t sums(int place, int warp) const {
        return address + Shape::kSumsAt + place * Shape::kPartBytes + warp * (Shape::kPartBytes / 4);
    }
    __device__ __forceinline__ uint32_t shifts(int stage) const {
        return address + Shape::kShiftsAt + stage * Shape::kNumberBytes;
    }
    __device__ __forceinline__ uint32_t deltas(int stage) const {
        return address + Shape::kDeltasAt + stage * Shape::kNumberBytes;
    }
    /// The two numbers of this thread's columns 8j + 2t and 8j + 2t + 1, t = lane % 4.
    __device__ __forceinline__ float2 pair(uint32_t numbers, int j, int lane) const {
        return *reinterpret_cast<const float2*>(start + (numbers - address) + 32 * j + lane % 4 * 8);
    }
    __device__ __forceinline__ uint4* board(int slot) const {
        return reinterpret_cast<uint4*>(start + Shape::kBoardAt) + slot;
    }

    __device__ __forceinline__ uint32_t barrier(int i) const { return address + Shape::kBarriersAt + 8 * i; }
    __device__ __forceinline__ uint32_t keys_full() const { return barrier(0); }
    __device__ __forceinline__ uint32_t keys_empty() const { return barrier(1); }
    __device__ __forceinline__ uint32_t values_full() const { return barrier(2); }
    __device__ __forceinline__ uint32_t values_empty() const { return barrier(3); }
    __device__ __forceinline__ uint32_t board_full(int slot) const { return barrier(4 + slot); }
    __device__ __forceinline__ uint32_t board_empty(int slot) const { return barrier(6 + slot); }
    __device__ __forceinline__ uint32_t queries_full(int stage) const { return barrier(8 + stage); }
    __device__ __forceinline__ uint32_t queries_empty(int stage) const { return barrier(8 + Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t out_full(int stage) const { return barrier(8 + 2 * Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t out_empty(int stage) const { return barrier(8 + 3 * Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t gradients_full(int stage) const { return barrier(8 + 4 * Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t gradients_empty(int stage) const {
        return barrier(8 + 4 * Shape::kStages + Shape::kGradientStages + stage);
    }

    /// One thread. Counts are those of the warps that read a place, or of the threads that fill it.
    __device__ __forceinline__ void init_barriers() const {
        mbarrier_init(keys_full(), 1);
        mbarrier_init(keys_empty(), Shape::kKeyWarps + Shape::kQueryWarps);
        mbarrier_init(values_full(), 1);
        mbarrier_init(values_empty(), Shape::kKeyWarps);
        for (int slot = 0; slot < 2; ++slot) {
            mbarrier_init(board_full(slot), 1);
            mbarrier_init(board_empty(slot), Shape::kKeyWarps + Shape::kQueryWarps + 2);
        }
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_init(queries_full(stage), 1);
            mbarrier_init(queries_empty(stage), Shape::kKeyWarps);
            mbarrier_init(out_full(stage), 1);
            mbarrier_init(out_empty(stage), Shape::kKeyWarps);
        }
        for (int stage = 0; stage < Shape::kGradientStages; ++stage) {
            mbarrier_init(gradients_full(stage), Shape::kKeyWarps);
            mbarrier_init(gradients_empty(stage), Shape::kQueryWarps);
        }
        mbarrier_fence_init();
    }
};

/// The block's queue of work: one thread writes tiles down, the others read them in the same order.
template <class Shape>
struct Board {
    RingOfTwo at;

    __device__ __forceinline__ void write(const BackwardMemory<Shape>& memory, const KeyTile& t) {
        mbarrier_wait(memory.board_empty(at.stage()), at.parity() ^ 1);
        *memory.board(at.stage()) = make_uint4(t.head, t.number, t.first, t.last);
        mbarrier_arrive(memory.board_full(at.stage()));
        at.advance();
    }
    /// One thread. A warp reads as read_by_warp.
    __device__ __forceinline__ KeyTile read(const BackwardMemory<Shape>& memory) {
        const KeyTile t = look(memory);
        mbarrier_arrive(memory.board_empty(at.stage()));
        at.advance();
        return t;
    }
    __device__ __forceinline__ KeyTile read_by_warp(const BackwardMemory<Shape>& memory, int lane) {
        const KeyTile t = look(memory);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(memory.board_empty(at.stage()));
        at.advance();
        return t;
    }

  private:
    __device__ __forceinline__ KeyTile look(const BackwardMemory<Shape>& memory) const {
        mbarrier_wait(memory.board_full(at.stage()), at.parity());
        const uint4 x = *memory.board(at.stage());
        return {static_cast<int>(x.x), static_cast<int>(x.y), static_cast<int>(x.z), static_cast<int>(x.w)};
    }
};
