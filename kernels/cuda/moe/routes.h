// SPDX-License-Identifier: MIT
// Which experts a token takes, and which tokens an expert gets: the kernels of a mixture of experts in front of its products.
#pragma once

#include <cstdint>

#include "online_softmax.h"
#include "ptx/math.h"
#include "ptx/mma.h"

namespace moe {

constexpr int kMaxExperts = 63;  // with the shared one, two to a lane

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

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float warp_maximum(float x) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}

constexpr int kRouteTokens = 16, kRouteWarps = 8;

/// 16 bytes of row `row` of a [rows, hidden] matrix, zeros beyond it.
__device__ __forceinline__ uint4 load_chunk(const uint16_t* matrix, int row, int rows, int hidden, int column) {
    if (row >= rows) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(matrix + static_cast<size_t>(row) * hidden + column);
}

/// Softmax of one token's scores, of which a lane has the experts lane and lane + 32, and the largest of them.
__device__ __forceinline__ void choose(const Routes& routes, int token, float (&score)[2], int lane) {
    const float largest = warp_maximum(fmaxf(score[0], score[1]));
    float weight[2];
    for (int i = 0; i < 2; ++i) weight[i] = Exp2{}((score[i] - largest) * kLog2E);
    const float sum = warp_sum(weight[0] + weight[1]);
    const size_t at = static_cast<size_t>(token) * routes.chosen;
    for (int slot = 0; slot < routes.chosen; ++slot) {
        const float best = warp_maximum(fmaxf(score[0], score[1]));
        const unsigned low = __ballot_sync(kAllLanes, score[0] == best);
        const unsigned high = __ballot_sync(kAllLanes, score[1] == best);
        const int half = low != 0 ? 0 : 1;
        if (lane != __ffs(low != 0 ? low : high) - 1) continue;
        routes.expert_of[at + slot] = lane + 32 * half;
        routes.weight_of[at + slot] = (half ? weight[1] : weight[0]) / sum;
        if (half) score[1] = -INFINITY;
        else score[0] = -INFINITY;
    }
}

/// Scores of 16 tokens against all experts, each warp over a part of the columns; then a warp takes two tokens' softmax. Operands
/// come straight from memory: a lane reads 16 bytes of a row, which are two product steps, in an order of k that both share.
template <int Tiles>  // of 8 experts
__global__ void __launch_bounds__(kRouteWarps * 32)
    choose_experts(const uint16_t* x, const uint16_t* router, const Routes routes, int hidden) {
    __shared__ float part[kRouteWarps][kRouteTokens][Tiles * 8 + 1];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int g = lane / 4, t = lane % 4;
    const int first = static_cast<int>(blockIdx.x) * kRouteTokens;
    float sum[Tiles][4] = {};
    for (int column = warp * 32; column < hidden; column += kRouteWarps * 32) {
        const uint4 top = load_chunk(x, first + g, routes.tokens, hidden, column + t * 8);
        const uint4 bottom = load_chunk(x, first + g + 8, routes.tokens, hidden, column + t * 8);
        const uint32_t a[2][4] = {{top.x, bottom.x, top.y, bottom.y}, {top.z, bottom.z, top.w, bottom.w}};
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
            const uint4 b = load_chunk(router, tile * 8 + g, routes.experts, hidden, column + t * 8);
            Fp16::mma_m16n8k16(sum[tile], a[0], b.x, b.y);
            Fp16::mma_m16n8k16(sum[tile], a[1], b.z, b.w);
        }
    }
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) part[warp][g + i / 2 * 8][tile * 8 + t * 2 + i % 2] = sum[tile][i];
    __syncthreads();
    for (int row = warp; row < kRouteTokens && first + row < routes.tokens; row += kRouteWarps) {
        float score[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int expert = lane + 32 * i;
            score[i] = expert < routes.experts ? 0.0f : -INFINITY;
            if (expert >= routes.experts) continue;
            for (int w = 0; w < kRouteWarps; ++w) score[i] += part[w][row][expert];
        }
        choose(routes, first + row, score, lane);
    }
}

constexpr int kListThreads = 1024, kListWarps = kListThreads / 32;

/// The shared expert's rows: all tokens, in their order, with weight 1.
__device__ __forceinline__ void list_all(const Routes& routes, int first) {
    for (int token = static_cast<int>(threadIdx.x); token < routes.tokens; token += kListThreads) {
        routes.token_of[first + token] = token;
        routes.row_weight[first + token] = 1.0f;
        routes.row_of[token * (routes.chosen + 1) + routes.chosen] = first + token;
    }
    if (threadIdx.x != 0) return;
    routes.first_row[routes.experts] = first;
    routes.first_row[routes.experts + 1] = first + routes.tokens;
}

/// One block per expert: count the pairs of experts before it and its own, then write its own in their order. Each warp has a
/// range of the pairs, so that the order does not depend on who comes first.
__global__ void __launch_bounds__(kListThreads) list_rows(const Routes routes) {
    __shared__ int own_of[kListWarps], before_of[kListWarps];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int expert = static_cast<int>(blockIdx.x), pairs = routes.tokens * routes.chosen;
    if (expert == routes.experts) return list_all(routes, pairs);

    const int share = (pairs + kListThreads - 1) / kListThreads * 32;
    const int begin = min(warp * share, pairs), end = min(begin + share, pairs);
    int own = 0, before = 0;
    for (int first = begin; first < end; first += 32) {
        const int found = first + lane < end ? routes.expert_of[first + lane] : routes.experts;
        own += __popc(__ballot_sync(kAllLanes, found == expert));
        before += __popc(__ballot_sync(kAllLanes, found < expert));
    }
    if (lane == 0) {
        own_of[warp] = own;
        before_of[warp] = before;
    }
    __syncthreads();
    int row = 0;
    for (int w = 0; w < kListWarps; ++w) row += before_of[w];
    if (threadIdx.x == 0) routes.first_row[expert] = row;
    for (int w = 0; w < warp; ++w) row += own_of[w];
    for (int first = begin; first < end; first += 32) {
        const int pair = first + lane;
        const bool mine = pair < end && routes.expert_of[pair] == expert;
        const unsigned all = __ballot_sync(kAllLanes, mine);
        if (mine) {
            const int at = row + __popc(all & ((1u << lane) - 1));
            routes.token_of[at] = pair / routes.chosen;
            routes.row_weight[at] = routes.weight_of[pair];
            routes.row_of[pair / routes.chosen * (routes.chosen + 1) + pair % routes.chosen] = at;
        }
        row += __popc(all);
    }
}

/// Rows [first, first + rows) of one expert, in tiles_m tiles, and which of the expert's tiles is meant.
struct ExpertTile {
    int expert, first, rows, tiles_m, index;
};

/// Tile `index` of all experts', in their order: an expert has `tiles_n` for each `tile_rows` rows or part of that. False beyond.
__device__ __forceinline__ bool find_tile(
    const Routes& routes, int tile_rows, int tiles_n, int index, ExpertTile& found) {
    int first = 0;
    for (int expert = 0; expert <= routes.experts; ++expert) {
        const int next = routes.first_row[expert + 1];
        const int tiles_m = ceil_div(next - first, tile_rows);
        if (index < tiles_m * tiles_n) {
            found = {expert, first, next - first, tiles_m, index};
            return true;
        }
        index -= tiles_m * tiles_n;
        first = next;
    }
    return false;
}

}  // namespace moe
