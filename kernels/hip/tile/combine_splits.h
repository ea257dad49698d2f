// SPDX-License-Identifier: MIT
// Merges the partial results of common/split_kv.h, always in the same order: results repeat to the bit.
#pragma once

#include "isa/lanes.h"
#include "isa/math.h"
#include "isa/types.h"
#include "online_softmax.h"
#include "split_kv.h"
#include "tile/bf16.h"

constexpr int kCombineThreads = 256;
constexpr int kCombineRows = kCombineThreads / kWaveSize;  // one wave per row

/// o (bf16) and the natural-log LSE of each row from `splits` parts of it. A lane merges `Columns` / 64 adjacent columns.
/// Row [b][i][h] of o is element [b][h][i] of lse.
template <int Columns>
__global__ void __launch_bounds__(kCombineThreads) combine_splits(
    SplitWorkspace parts, uint16_t* __restrict__ o, float* __restrict__ lse, int splits, long long rows, int seqlen_q,
    int heads_q) {
    constexpr int kPerLane = Columns / kWaveSize;
    static_assert(kPerLane == 8, "a lane stores one 16-byte vector");
    const long long row = static_cast<long long>(blockIdx.x) * kCombineRows + wave_id();
    if (row >= rows) return;

    float maximum = -INFINITY;
    for (int s = 0; s < splits; ++s) maximum = fmaxf(maximum, parts.lse[s * rows + row]);
    const float shift = maximum == -INFINITY ? 0.0f : maximum * kLog2E;

    float sum = 0.0f;
    f32x4 value[2] = {};
    const long long column = lane_id() * kPerLane;
    for (int s = 0; s < splits; ++s) {
        const float part_lse = parts.lse[s * rows + row];
        if (part_lse == -INFINITY) continue;  // its o was never written
        const float weight = exp2_approx(part_lse * kLog2E - shift);
        const float* part = parts.o + (s * rows + row) * Columns + column;
        sum += weight;
        value[0] += *reinterpret_cast<const f32x4*>(part) * weight;
        value[1] += *reinterpret_cast<const f32x4*>(part + 4) * weight;
    }
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    const f32x4 x = value[0] * inverse, y = value[1] * inverse;
    *reinterpret_cast<u32x4*>(o + row * Columns + column) =
        u32x4{pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3])};

    if (lane_id() != 0) return;
    const long long head = row % heads_q, query = row / heads_q % seqlen_q, batch = row / heads_q / seqlen_q;
    lse[(batch * heads_q + head) * seqlen_q + query] = sum > 0.0f ? maximum + log2f(sum) * kLn2 : -INFINITY;
}
