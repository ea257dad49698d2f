// SPDX-License-Identifier: MIT
// Which experts a token takes, and which tokens an expert gets: the two kernels in front of the products.
#pragma once

#include "isa/buffer.h"
#include "isa/lanes.h"
#include "isa/math.h"
#include "isa/types.h"
#include "online_softmax.h"
#include "tile/half.h"
#include "tile/half_panel.h"

constexpr int kMaxExperts = 63;  // with the shared one, a lane each

/// Rows are (token, expert) pairs, in the order of experts; the shared expert, number `experts`, comes last and has all tokens.
struct Routes {
    int* expert_of;    // [tokens, chosen]
    float* weight_of;  // [tokens, chosen]
    int* row_of;       // [tokens, chosen + 1]
    int* token_of;     // [rows]
    int* first_row;    // [experts + 2]
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

constexpr int kListThreads = 1024, kListWaves = kListThreads / kWaveSize, kListBatch = 8;

/// One workgroup per expert: count the pairs of experts before it and its own, then write its own in their order. Each wave has
/// a range of the pairs, so that the order does not depend on who comes first.
__global__ void __launch_bounds__(kListThreads) list_rows(Routes routes) {
    __shared__ int own_of[kListWaves], before_of[kListWaves];
    const int expert = static_cast<int>(blockIdx.x), pairs = routes.tokens * routes.chosen;
    const int thread = static_cast<int>(threadIdx.x);
    if (expert == routes.experts) {
        for (int token = thread; token < routes.tokens; token += kListThreads) {
            routes.token_of[pairs + token] = token;
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
    for (int first = begin; first < end; first += kListBatch * kWaveSize) {
        int found[kListBatch];  // asked for at once
#pragma unroll
        for (int i = 0; i < kListBatch; ++i) {
            const int pair = first + i * kWaveSize + lane_id();
            found[i] = pair < end ? routes.expert_of[pair] : routes.experts;
        }
#pragma unroll
        for (int i = 0; i < kListBatch; ++i)
            own += count_lanes(found[i] == expert), before += count_lanes(found[i] < expert);
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
    for (int first = begin; first < end; first += kListBatch * kWaveSize) {
        bool mine[kListBatch];
#pragma unroll
        for (int i = 0; i < kListBatch; ++i) {
            const int pair = first + i * kWaveSize + lane_id();
            mine[i] = pair < end && routes.expert_of[pair] == expert;
        }
#pragma unroll
        for (int i = 0; i < kListBatch; ++i) {
            const uint64_t all = __builtin_amdgcn_ballot_w64(mine[i]);
            if (mine[i]) {
                const int pair = first + i * kWaveSize + lane_id(), token = pair / routes.chosen;
                const int at = row + __builtin_popcountll(all & ((uint64_t{1} << lane_id()) - 1));
                routes.token_of[at] = token;
                routes.row_of[pair + token] = at;
            }
            row += __builtin_popcountll(all);
        }
    }
}
