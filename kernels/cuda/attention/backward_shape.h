// SPDX-License-Identifier: MIT
// One instance of the Hopper attention backward: its tile, its warps, where everything lies in shared memory, and which
// queries a tile of keys meets in which order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"

namespace attention {

// How often a warp arrives at a barrier: once, after a __syncwarp. compute-sanitizer's racecheck does not follow that order and
// reports the next load, or the next tile on the board, against what the other lanes have read. With -DWARPWAVE_RACECHECK every lane arrives, and it is
// silent.
#if defined(WARPWAVE_RACECHECK)
constexpr int kWarpArrivals = 32;
#else
constexpr int kWarpArrivals = 1;
#endif

template <class Element>
constexpr int kShiftOfWeights = 0;
template <>
constexpr int kShiftOfWeights<Fp16> = 10;

/// Two key warpgroups with 64 keys each, one warpgroup for dQ, and one whose warps load and tend sums; kQueries at a time in
/// a ring of kStages tiles of Q and of dO. With two places for keys and values the next tile's load early. At head dimension
/// 256 registers hold dK or dV of 64 keys, not both: there the key warpgroups have the same 64 keys and a role each.
template <class Element_, int kHeadDim_, int kQueries_, int kStages_, int kPlaces_>
struct BackwardShape {
    using Element = Element_;
    static constexpr int kHeadDim = kHeadDim_, kQueries = kQueries_, kStages = kStages_;
    static constexpr int kPlaces = kPlaces_;               // for a tile's keys and values
    static constexpr int kRoles = kHeadDim > 128 ? 2 : 1;  // 0: S, P and dV; 1: dP, dS and dK
    static constexpr int kGroups = 2, kKeys = 64 * kGroups / kRoles, kSlices = kQueries / 64;
    static constexpr int kKeyWarps = 4 * kGroups, kRoleWarps = kKeyWarps / kRoles, kQueryWarps = 4;
    static constexpr int kThreads = 32 * (kKeyWarps + kQueryWarps) + 128;
    // What launch bounds give 512 threads is 128 each.
    static constexpr int kKeyRegisters = 208, kQueryRegisters = 64, kLoadRegisters = 32;

    // Weights are 2^kWeightShift times what they are, so that fp16 has them whole down to 2^-24: dS is made of rounded weights
    // and may be far larger than they are. bf16 has exponents enough.
    static constexpr int kWeightShift = kShiftOfWeights<Element>;

    // Tiles are [kHeadDim / 64][rows] of 128 bytes, dS is [keys / 64][queries], all in TMA's 128-byte swizzle.
    static constexpr int kKeyBytes = kKeys * kHeadDim * 2, kQueryBytes = kQueries * kHeadDim * 2;
    static constexpr int kKeyPitch = kKeys * 128, kQueryPitch = kQueries * 128;                // between columns of 64
    static constexpr int kGradientStages = 2 / kRoles, kGradientBytes = kQueries * kKeys * 2;  // of dS
    static constexpr int kWeightBytes = (kRoles - 1) * kGradientBytes;  // of P, which roles pass on
    static constexpr int kNumberBytes = kQueries * 4;
    // dQ in fp32: parts of 64 x 64 are multiplied at a time and take turns, whole or in pieces, at two places.
    static constexpr int kParts = kSlices * kHeadDim / 64, kPieces = kRoles, kPlaceBytes = 64 * 64 * 4 / kPieces;
    static constexpr int kValuesAt = kPlaces * kKeyBytes, kQueriesAt = 2 * kPlaces * kKeyBytes;
    static constexpr int kOutAt = kQueriesAt + kStages * kQueryBytes;
    static constexpr int kGradientsAt = kOutAt + kStages * kQueryBytes;
    static constexpr int kSumsAt = kGradientsAt + kGradientStages * kGradientBytes;
    static constexpr int kWeightsAt = kSumsAt + 2 * kPlaceBytes;
    static constexpr int kShiftsAt = kWeightsAt + kWeightBytes;
    static constexpr int kDeltasAt = kShiftsAt + kStages * kNumberBytes;
    static constexpr int kBoardAt = kDeltasAt + kStages * kNumberBytes;
    static constexpr int kBarriersAt = kBoardAt + 2 * 16;
    static constexpr int kBarriers = 2 * (2 * kPlaces + 2 + 2 * kStages + kGradientStages + 2 + kRoles - 1);
    static constexpr int kSharedBytes = kBarriersAt + kBarriers * 8;

    static_assert(kHeadDim == 64 || kHeadDim == 128 || kHeadDim == 256, "what kernel.h offers");
    static_assert(kQueries == 64 || kQueries == 128, "dQ is multiplied 64 queries at a time, sums are padded to 128");
    static_assert(kParts % 2 == 0, "a step begins with the first of two places");
    static_assert(kRoles == 1 || kPlaces == 1, "roles wait for their operand alone");
    static_assert(kGroups * kKeyRegisters + kQueryRegisters + kLoadRegisters <= 4 * 128, "a wait for ever");
    static_assert(kSharedBytes <= 227 * 1024, "what a block can have");
};

constexpr int kMostPartBits = 3;

/// What the kernels need beside the tensor maps. Query rows are padded to `rows`, a multiple of 128, in what the workspace
/// holds. A section is some key heads (of all batches) whose tiles are taken together, so that what they read stays in L2.
struct BackwardProblem {
    // [batch, heads, rows]: lse * log2(e) - kWeightShift, or +inf for a row that sees no key or does not exist.
    float* shifts;
    float* deltas;  // [batch, heads, rows]: rowsum(dout * o) * 2^-kWeightShift
    float* sums;    // [batch, heads][rows / 64][head_dim / 64][4][8][32][4]: dq in fp32, as the accumulators of 4 warps
    int* turns;  // [batch, heads, rows / 64]: how many key tiles were added to these queries, where the order is fixed
    int* next;   // the first task that nobody has taken
    int* chore;  // the first chore that nobody has taken, see tend_sums
    // [batch, key_heads]: threads that have added their part of a key tile to the sums, a warp's or a tile's.
    int* added;
    int* cleared;  // [batch, key_heads]: pieces of sums that the main kernel has set to zero
    // [tiles from `split` on][dv, dk][warps of 16 keys][head_dim / 2][32]: in fp32, as the accumulators
    float* key_sums;
    uint8_t* dq;  // [batch, queries, heads, head_dim]
    uint8_t* dk;  // [batch, keys, key_heads, head_dim]
    uint8_t* dv;
    int batch, queries, keys, heads, key_heads, group;  // group: query heads of a key head
    int rows;
    bool causal;
    float softmax_scale, scale;  // scale: softmax_scale * log2(e)
    int tiles;                   // of keys, of one head
    int part_bits;               // a tile comes in 2^part_bits parts, which add up in key_sums
    int whole, last_parts;       // behind `whole` tasks a tile comes in last_parts parts of its queries
    int split;                   // from this tile on, heads one after another, tiles come in parts
    bool heads_apart;            // whether parts have different heads of the group, else different queries
    int sections, section;       // their number, and key heads of each but the last, which has the rest
    int tasks, given;    // tiles in all, or parts of them; how many of them blocks have from the start, one each
    int last;            // key heads of the last section
    int pieces, chores;  // of sums of one key head, 64 query rows each; of tend_sums, 0 if there are none
    bool tends;          // whether the main kernel writes dq beside zeros
    bool around;         // for Walk::kAround
    int down;            // the first head whose tiles take turns downwards

    __host__ __device__ int key_heads_in_all() const { return batch * key_heads; }
    __host__ __device__ int first_head(int number) const {  // of section `number`
        return number < sections ? number * section : key_heads_in_all();
    }
    __host__ __device__ int tasks_of_head() const { return tiles << part_bits; }
    __host__ __device__ int tiles_in_parts() const { return key_heads_in_all() * tiles - split; }
    /// The first of `total` things that are not those of the parts before `part`. There are fewer than 2^26 tiles of queries.
    __host__ __device__ int share(int total, int part) const { return total * part >> part_bits; }
    /// The first query head of a group that is part `part`'s.
    __host__ __device__ int group_head(int part) const { return heads_apart ? share(group, part) : 0; }
    __host__ __device__ int group_heads(int part) const {
        return heads_apart ? share(group, part + 1) - share(group, part) : group;
    }
};

/// A tile of keys, or a part of its work, and the tiles of queries it meets, [first, last], of each of the part's heads.
struct KeyTile {
    int head;    // batch * key_heads + key head; negative: no more work
    int number;  // of the tile among the head's
    int part;
    int first, last;

    /// How many steps the tile takes.
    __device__ __forceinline__ int steps(const BackwardProblem& p) const {
        return max(0, last - first + 1) * p.group_heads(part);
    }
    /// Whether other parts of the tile are tasks of their own.
    __device__ __forceinline__ bool comes_in_parts(const BackwardProblem& p) const {
        return head * p.tiles + number >= p.split;
    }
};

/// The order of a key tile's steps, which are all tiles of queries of one head, then those of the group's next head.
enum class Order {
    kAround,  // where p.around, begins in a place of the key tile's own, goes down and around, so that blocks add to different
              // sums; else as kDown
    kDown,  // from the last queries to the first
    kUp,    // from the first to the last, in the heads from `down` on down; key tiles take turns at the sums
};

/// Tile `task`: section by section, and there head by head where all tiles take as long. Else the first keys of all its heads
/// come first, which causal queries see most of. Where causal tiles take turns the last come first, and go up: each then finds
/// the sums as the next keys' tile left them a step ago. Then the longest end last: in the last section, where blocks begin one
/// after the other, the first keys come first and go down from the last queries.
template <Order kOrder>
__device__ __forceinline__ KeyTile find_task(const BackwardProblem& p, int task, int queries, int keys) {
    const int late = max(0, task - p.whole), late_tile = late / p.last_parts;
    task = min(task, p.whole) + late_tile;
    const int section = min(task / (p.section * p.tasks_of_head()), p.sections - 1), first_head = p.first_head(section);
    const int heads = p.first_head(section + 1) - first_head, rest = task - first_head * p.tasks_of_head();
    const bool by_heads = kOrder != Order::kUp && !p.causal;
    const int divisor = by_heads ? p.tasks_of_head() : heads, quotient = rest / divisor,
              remainder = rest - quotient * divisor, place = by_heads ? remainder : quotient;
    KeyTile t;
    t.head = first_head + (by_heads ? quotient : remainder);
    t.number = place >> p.part_bits;
    t.part = place - (t.number << p.part_bits);
    if (kOrder == Order::kUp && p.causal && t.head < p.down) t.number = p.tiles - 1 - t.number;
    // Causal: query i sees keys j <= i + p.keys - p.queries.
    t.first = p.causal ? max(0, t.number * keys - (p.keys - p.queries)) / queries : 0;
    t.last = ceil_div(p.queries, queries) - 1;
    if (p.part_bits > 0 && !p.heads_apart) {
        const int first = t.first, count = max(0, t.last - first + 1);
        t.first = first + p.share(count, t.part);
        t.last = first + p.share(count, t.part + 1) - 1;
    }
    if (kOrder != Order::kUp && task >= p.whole) {
        const int count = t.last + 1, part = late - late_tile * p.last_parts;
        t.first = count * part / p.last_parts;
        t.last = count * (part + 1) / p.last_parts - 1;
    }
    return t;
}

/// How many key tiles come before a tile at the sums of a tile of queries, where they take turns: as many as would come earlier
/// if all began at once, or one after the other where they go down.
__device__ __forceinline__ int turn_of(const BackwardProblem& p, const KeyTile& t, int tile, int queries, int keys) {
    if (!p.causal || t.head >= p.down) return t.number;
    const int latest = ((tile + 1) * queries + p.keys - p.queries - 1) / keys;  // whose `first` is not behind
    return min(p.tiles - 1, latest) - t.number;
}

/// The steps of a key tile.
template <Order kOrder>
struct QueryOrder {
    int head, tile, begin;  // head: batch * heads + query head

    __device__ __forceinline__ QueryOrder(const BackwardProblem& p, const KeyTile& t)
        : head(t.head * p.group + p.group_head(t.part)), tile(kOrder == Order::kUp ? t.first : t.last), begin(tile) {
        if (kOrder == Order::kAround && p.around)
            begin = tile =
                t.first + static_cast<int>(static_cast<long long>(t.number) * (t.last - t.first + 1) / p.tiles);
        if (kOrder == Order::kUp && t.head >= p.down) begin = tile = t.last;
    }
    __device__ __forceinline__ void next(const BackwardProblem& p, const KeyTile& t) {
        if (kOrder == Order::kUp && t.head < p.down) tile = tile == t.last ? t.first : tile + 1;
        else tile = tile == t.first ? t.last : tile - 1;
        head += tile == begin;
    }
};

/// A place in a ring of one or two, in one register.
template <int kPlaces>
struct ShortRing {
    static_assert(kPlaces == 1 || kPlaces == 2, "bits of a number");
    int uses = 0;

    __device__ __forceinline__ int stage() const { return uses & (kPlaces - 1); }
    __device__ __forceinline__ uint32_t parity() const { return uses >> (kPlaces - 1) & 1; }
    __device__ __forceinline__ void advance() { ++uses; }
};

/// Addresses in one block's shared memory.
template <class Shape>
struct BackwardMemory {
    uint8_t* start;
    uint32_t address;

    __device__ __forceinline__ uint32_t keys(int place) const { return address + place * Shape::kKeyBytes; }
    __device__ __forceinline__ uint32_t values(int place) const {
        return address + Shape::kValuesAt + place * Shape::kKeyBytes;
    }
    __device__ __forceinline__ uint32_t queries(int stage) const {
        return address + Shape::kQueriesAt + stage * Shape::kQueryBytes;
    }
    __device__ __forceinline__ uint32_t out(int stage) const {
        return address + Shape::kOutAt + stage * Shape::kQueryBytes;
    }
    __device__ __forceinline__ uint32_t gradients(int stage) const {
        return address + Shape::kGradientsAt + stage * Shape::kGradientBytes;
    }
    /// Where a warp of dQ puts a piece of a part of its rows for TMA to add: [8 / kPieces][32][4] numbers.
    __device__ __forceinline__ uint32_t sums(int place, int warp) const {
        return address + Shape::kSumsAt + place * Shape::kPlaceBytes + warp * (Shape::kPlaceBytes / 4);
    }
    /// Where the roles of a lane pass on four weights of each of two rows: 16 queries, of kQueries.
    __device__ __forceinline__ uint4* weights(int i, int warp, int lane) const {
        return reinterpret_cast<uint4*>(start + Shape::kWeightsAt) + (i * Shape::kRoleWarps + warp) * 32 + lane;
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
    __device__ __forceinline__ uint32_t keys_full(int place) const { return barrier(place); }
    __device__ __forceinline__ uint32_t keys_empty(int place) const { return barrier(Shape::kPlaces + place); }
    __device__ __forceinline__ uint32_t values_full(int place) const { return barrier(2 * Shape::kPlaces + place); }
    __device__ __forceinline__ uint32_t values_empty(int place) const { return barrier(3 * Shape::kPlaces + place); }
    __device__ __forceinline__ uint32_t board_full(int slot) const { return barrier(kBoardBarriers + slot); }
    __device__ __forceinline__ uint32_t board_empty(int slot) const { return barrier(kBoardBarriers + 2 + slot); }
    __device__ __forceinline__ uint32_t queries_full(int stage) const { return barrier(kRingBarriers + stage); }
    __device__ __forceinline__ uint32_t queries_empty(int stage) const {
        return barrier(kRingBarriers + Shape::kStages + stage);
    }
    __device__ __forceinline__ uint32_t out_full(int stage) const {
        return barrier(kRingBarriers + 2 * Shape::kStages + stage);
    }
    __device__ __forceinline__ uint32_t out_empty(int stage) const {
        return barrier(kRingBarriers + 3 * Shape::kStages + stage);
    }
    __device__ __forceinline__ uint32_t gradients_full(int stage) const { return barrier(kGradientBarriers + stage); }
    __device__ __forceinline__ uint32_t gradients_empty(int stage) const {
        return barrier(kGradientBarriers + Shape::kGradientStages + stage);
    }
    __device__ __forceinline__ uint32_t sums_full(int place) const { return barrier(kSumBarriers + place); }
    __device__ __forceinline__ uint32_t sums_empty(int place) const { return barrier(kSumBarriers + 2 + place); }
    __device__ __forceinline__ uint32_t weights_full() const { return barrier(kSumBarriers + 4); }
    __device__ __forceinline__ uint32_t weights_empty() const { return barrier(kSumBarriers + 5); }

    /// One thread. Counts are those of the warps that read a place, or of the threads that fill it; `readers`: threads that
    /// read the board beside warps.
    __device__ __forceinline__ void init_barriers(int readers) const {
        for (int place = 0; place < Shape::kPlaces; ++place) {
            mbarrier_init(keys_full(place), 1);
            mbarrier_init(keys_empty(place), kWarpArrivals * Shape::kRoleWarps + Shape::kQueryWarps);
            mbarrier_init(values_full(place), 1);
            mbarrier_init(values_empty(place), kWarpArrivals * Shape::kRoleWarps);
        }
        for (int slot = 0; slot < 2; ++slot) {
            mbarrier_init(board_full(slot), 1);
            mbarrier_init(board_empty(slot), kWarpArrivals * (Shape::kKeyWarps + Shape::kQueryWarps) + readers);
        }
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_init(queries_full(stage), 1);
            mbarrier_init(queries_empty(stage), kWarpArrivals * Shape::kKeyWarps);
            mbarrier_init(out_full(stage), 1);
            mbarrier_init(out_empty(stage), kWarpArrivals * Shape::kKeyWarps);
        }
        for (int stage = 0; stage < Shape::kGradientStages; ++stage) {
            mbarrier_init(gradients_full(stage), kWarpArrivals * Shape::kRoleWarps);
            mbarrier_init(gradients_empty(stage), (Shape::kRoles > 1 ? kWarpArrivals : 1) * Shape::kQueryWarps);
        }
        for (int place = 0; place < 2; ++place) {
            mbarrier_init(sums_full(place), Shape::kQueryWarps);
            mbarrier_init(sums_empty(place), 1);
        }
        if constexpr (Shape::kRoles > 1) {
            mbarrier_init(weights_full(), kWarpArrivals * Shape::kRoleWarps);
            mbarrier_init(weights_empty(), kWarpArrivals * Shape::kRoleWarps);
        }
        mbarrier_fence_init();
    }

private:
    static constexpr int kBoardBarriers = 4 * Shape::kPlaces;
    static constexpr int kRingBarriers = kBoardBarriers + 4, kGradientBarriers = kRingBarriers + 4 * Shape::kStages;
    static constexpr int kSumBarriers = kGradientBarriers + 2 * Shape::kGradientStages;
};

/// The block's queue of work: one thread writes tiles down, the others read them in the same order.
template <class Shape>
struct Board {
    ShortRing<2> at;

    __device__ __forceinline__ void write(const BackwardMemory<Shape>& memory, const KeyTile& t) {
        mbarrier_wait(memory.board_empty(at.stage()), at.parity() ^ 1);
        *memory.board(at.stage()) = make_uint4(t.head, t.number * kParts + t.part, t.first, t.last);
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
        if (lane == 0 || kWarpArrivals > 1) mbarrier_arrive(memory.board_empty(at.stage()));
        at.advance();
        return t;
    }

private:
    static constexpr unsigned kParts =
        1 << kMostPartBits;  // numbers of parts, and room for them beside a tile's number

    __device__ __forceinline__ KeyTile look(const BackwardMemory<Shape>& memory) const {
        mbarrier_wait(memory.board_full(at.stage()), at.parity());
        const uint4 x = *memory.board(at.stage());
        return {
            static_cast<int>(x.x), static_cast<int>(x.y / kParts), static_cast<int>(x.y % kParts),
            static_cast<int>(x.z), static_cast<int>(x.w)};
    }
};

}  // namespace attention
