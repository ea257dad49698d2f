// SPDX-License-Identifier: MIT
// Which experts a token takes, and which tokens an expert gets: the two kernels in front of the products.
#pragma once

#include "isa/buffer.h"
#include "isa/lanes.h"
#include "isa/math.h"
#include "isa/types.h"
#include "online_softmax.h"
#include "tile/grid.h"
#include "tile/half.h"
#include "tile/half_overlapped.h"
#include "tile/half_panel.h"

constexpr int kMaxExperts = 63;  // with the shared one, a lane each

/// Rows are (token, expert) pairs, in the order of experts; the shared expert, number `experts`, comes last and has all tokens.
struct Routes {
    int* expert_of;     // [tokens, chosen]
    float* weight_of;   // [tokens, chosen]
    int* row_of;        // [tokens, chosen + 1]
    int* token_of;      // [rows]
    float* row_weight;  // [rows]
    int* first_row;     // [experts + 2]
    int tokens, experts, chosen;
};

__device__ __forceinline__ float wave_maximum(float value) {
#pragma unroll
    for (int step = 1; step < kWaveSize; step *= 2) value = fmaxf(value, from_lane_xor(value, step));
    return value;
}

__device__ __forceinline__ float wave_sum(float value) {
#pragma unroll
    for (int step = 1; step < kWaveSize; step *= 2) value += from_lane_xor(value, step);
    return value;
}

constexpr int kRouteTokens = 16, kRouteWaves = 8, kRouteThreads = kRouteWaves * kWaveSize;

/// Scores of 16 tokens against all experts, each wave over a part of the columns, then a wave per token for softmax and choice.
/// Operands come straight from memory: a lane reads 16 bytes of its row, two MFMA steps.
template <int Tiles>  // of 16 experts
__global__ void __launch_bounds__(kRouteThreads)
    choose_experts(const uint16_t* __restrict__ x, const uint16_t* __restrict__ router, Routes routes, int hidden) {
    __shared__ float part[kRouteWaves][kRouteTokens][Tiles * 16 + 1];
    const int first = static_cast<int>(blockIdx.x) * kRouteTokens;
    const int r = lane_id() % 16, g = lane_id() / 16;
    const int rows = routes.tokens - first < kRouteTokens ? routes.tokens - first : kRouteTokens;
    const BufferResource tokens =
        make_buffer(x + static_cast<size_t>(first) * static_cast<size_t>(hidden), rows * hidden * 2);
    const BufferResource experts = make_buffer(router, routes.experts * hidden * 2);

    f32x4 score[Tiles] = {};
    const int chunks = hidden / kHalvesPerChunk;
    for (int chunk = wave_id() * 4; chunk < chunks; chunk += kRouteWaves * 4) {
        const int place = (chunk + g) * kChunk;
        const u32x4 a = buffer_load_16(tokens, r * hidden * 2 + place);
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
            const u32x4 b = buffer_load_16(experts, (tile * 16 + r) * hidden * 2 + place);
            score[tile] = Fp16::multiply(first_step(b), first_step(a), score[tile]);
            score[tile] = Fp16::multiply(second_step(b), second_step(a), score[tile]);
        }
    }
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) part[wave_id()][r][tile * 16 + g * 4 + i] = score[tile][i];
    __syncthreads();

    for (int token = wave_id(); token < rows; token += kRouteWaves) {
        const bool exists = lane_id() < routes.experts;
        float logit = 0.0f;
#pragma unroll
        for (int wave = 0; wave < kRouteWaves; ++wave) logit += exists ? part[wave][token][lane_id()] : 0.0f;
        logit = exists ? logit : -INFINITY;
        float weight = exp2_approx((logit - wave_maximum(logit)) * kLog2E);
        weight /= wave_sum(weight);
        const size_t at = static_cast<size_t>(first + token) * static_cast<size_t>(routes.chosen);
        for (int slot = 0; slot < routes.chosen; ++slot) {
            const uint64_t best = __builtin_amdgcn_ballot_w64(logit == wave_maximum(logit));
            const int expert = __builtin_ctzll(best);
            if (lane_id() == expert) {
                routes.expert_of[at + static_cast<size_t>(slot)] = expert;
                routes.weight_of[at + static_cast<size_t>(slot)] = weight;
                logit = -INFINITY;
            }
        }
    }
}

constexpr int kListThreads = 1024, kListWaves = kListThreads / kWaveSize;

/// One workgroup per expert: count the pairs of experts before it and its own, then write its own in their order. Each wave has
/// a range of the pairs, so that the order does not depend on who comes first.
__global__ void __launch_bounds__(kListThreads) list_rows(Routes routes) {
    __shared__ int own_of[kListWaves], before_of[kListWaves];
    const int expert = static_cast<int>(blockIdx.x), pairs = routes.tokens * routes.chosen;
    const int thread = static_cast<int>(threadIdx.x);
    if (expert == routes.experts) {
        for (int token = thread; token < routes.tokens; token += kListThreads) {
            routes.token_of[pairs + token] = token;
            routes.row_weight[pairs + token] = 1.0f;
            routes.row_of[token * (routes.chosen + 1) + routes.chosen] = pairs + token;
        }
        if (thread == 0) {
            routes.first_row[expert] = pairs;
            routes.first_row[expert + 1] = pairs + routes.tokens;
        }
        return;
    }
    const int share = (pairs + kListThreads - 1) / kListThreads * kWaveSize;  // of a wave
    const int begin = wave_id() * share < pairs ? wave_id() * share : pairs;
    const int end = begin + share < pairs ? begin + share : pairs;
    int own = 0, before = 0;
    for (int first = begin; first < end; first += kWaveSize) {
        const int pair = first + lane_id();
        const int found = pair < end ? routes.expert_of[pair] : routes.experts;
        own += __builtin_popcountll(__builtin_amdgcn_ballot_w64(found == expert));
        before += __builtin_popcountll(__builtin_amdgcn_ballot_w64(found < expert));
    }
    if (lane_id() == 0) {
        own_of[wave_id()] = own;
        before_of[wave_id()] = before;
    }
    __syncthreads();
    int row = 0;
#pragma unroll
    for (int wave = 0; wave < kListWaves; ++wave) row += before_of[wave];
    if (thread == 0) routes.first_row[expert] = row;
    for (int wave = 0; wave < wave_id(); ++wave) row += own_of[wave];
    for (int first = begin; first < end; first += kWaveSize) {
        const int pair = first + lane_id();
        const bool mine = pair < end && routes.expert_of[pair] == expert;
        const uint64_t all = __builtin_amdgcn_ballot_w64(mine);
        if (mine) {
            const int at = row + __builtin_popcountll(all & ((uint64_t{1} << lane_id()) - 1));
            routes.token_of[at] = pair / routes.chosen;
            routes.row_weight[at] = routes.weight_of[pair];
            routes.row_of[pair / routes.chosen * (routes.chosen + 1) + pair % routes.chosen] = at;
        }
        row += __builtin_popcountll(all);
    }
}

/// Rows [first, first + count) of one expert, `units` units of kUnitRows or part of that; and a tile of columns.
struct ExpertTile {
    int expert, first, count, units, column;
};

/// What a product's workgroups do, each every gridDim.x-th tile. An expert's rows are cut into tiles that are alike, and those of
/// the same columns follow one another: they share the expert's matrix while it passes by. Experts whose tiles are all as
/// high as tiles get come first.
class ExpertTiles {
    static constexpr int kBand = 8;  // tiles of rows that share columns of an expert's matrix in L2

    const Routes& routes_;
    const int columns_;  // tiles of columns
    int highest_;        // units of the highest tile
    int count_, high_;   // tiles in all, and those of experts whose tiles are all high
    int index_;

    /// Lane e's are expert e's. Made anew for each tile: a loop over K has no registers for it.
    struct Lanes {
        int first, rows, units, tiles;
        bool high;
        int before;  // tiles of experts before it that are, or are not, high, as it is

        __device__ __forceinline__ Lanes(const Routes& routes, int highest) {
            const int lane = computed_here(static_cast<int>(threadIdx.x)) % kWaveSize;
            const bool exists = lane <= routes.experts;
            first = exists ? routes.first_row[lane] : 0;
            rows = exists ? routes.first_row[lane + 1] - first : 0;
            units = (rows + kUnitRows - 1) / kUnitRows;
            tiles = (units + highest - 1) / highest;
            high = units == tiles * highest;
            int some = high ? tiles : 0, others = tiles - some;
#pragma unroll
            for (int step = 1; step < kWaveSize; step *= 2) {
                const int below = from_lane(some, lane - step), others_below = from_lane(others, lane - step);
                some += lane >= step ? below : 0;
                others += lane >= step ? others_below : 0;
            }
            all_high = read_lane(some, kWaveSize - 1);
            all = all_high + read_lane(others, kWaveSize - 1);
            before = (high ? some : others) - tiles;
        }
        int all, all_high;
    };

    /// Rounds of all workgroups times how long a tile of `highest` units takes, in eighths of one of four.
    __device__ __forceinline__ int effort(int highest) const {
        const int workgroups = static_cast<int>(gridDim.x), share = highest == kUnits ? 8 : highest + 3;
        return (Lanes(routes_, highest).all * columns_ + workgroups - 1) / workgroups * share;
    }

public:
    __device__ __forceinline__ ExpertTiles(const Routes& routes, int columns)
        : routes_(routes), columns_(columns), index_(static_cast<int>(blockIdx.x)) {
        const int four = effort(4), two = effort(2), one = effort(1);
        highest_ = uniform(four <= two && four <= one ? 4 : two <= one ? 2 : 1);
        const Lanes lanes(routes, highest_);
        count_ = lanes.all * columns;
        high_ = lanes.all_high * columns;
    }

    /// This workgroup's next tile; false if there is none.
    __device__ __forceinline__ bool next(ExpertTile& tile) {
        if (index_ >= count_) return false;
        const Lanes lanes(routes_, highest_);
        const bool high = index_ < high_;
        const int at = uniform(high ? die_contiguous(high_, index_) : die_contiguous(count_ - high_, index_ - high_));
        index_ += static_cast<int>(gridDim.x);

        const bool begun = lanes.tiles > 0 && lanes.high == high && lanes.before * columns_ <= at;
        tile.expert = uniform(63 - __builtin_clzll(__builtin_amdgcn_ballot_w64(begun)));
        const int tiles = read_lane(lanes.tiles, tile.expert), units = read_lane(lanes.units, tile.expert);
        const TileIndex place =
            banded_tile<kBand>(at - read_lane(lanes.before, tile.expert) * columns_, tiles, columns_);
        // Where some are a unit higher, each workgroup is to get its share of them.
        const int m = place.n % 2 != 0 && tiles <= kBand ? tiles - 1 - place.m : place.m;
        const int least = uniform(units / tiles), higher = units - least * tiles;
        const int row = (m * least + (m < higher ? m : higher)) * kUnitRows;
        tile.units = least + (m < higher);
        tile.column = place.n;
        tile.first = read_lane(lanes.first, tile.expert) + row;
        const int left = read_lane(lanes.rows, tile.expert) - row;
        tile.count = left < tile.units * kUnitRows ? left : tile.units * kUnitRows;
        return true;
    }
};
