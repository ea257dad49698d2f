// SPDX-License-Identifier: MIT
// MLA decode of 16 rows where each request is cut into two chunks: the two blocks are a cluster and add up what they have without
// storing it to global memory, so that no second kernel has to wait for them.
//
// Each block leaves its output, normalised fp32, and the LSE of its rows in shared memory. Each merges half of the columns, which it
// reads from both.
#pragma once

#include "online_softmax.h"
#include "ptx/cluster.h"
#include "ptx/exp2.h"
#include "ptx/mma_16bit.h"
#include "tile/decode_rows.h"
#include "tile/wgmma_latent_few_shape.h"

template <class Shape>
struct FewPair {
    const FewMemory<Shape>& memory;
    const FewArguments& a;
    int thread;   // of 256

    /// When both blocks' halves are there; the other's are read when this returns.
    __device__ __forceinline__ void merge(int request, int rank) const {
        const int row = thread / 16, column = thread % 16 * 4, in_four = row % 4;   // and 64, 128, 192 columns further
        const uint32_t area = Shape::kExchange + rank * Shape::kExchangeBytes, at = row * Shape::kExchangePitch + column;
        const uint32_t other = map_shared(memory.base + area + at * 4, rank ^ 1);
        const float4 lse = load_cluster(map_shared(memory.base + Shape::kMaxima + row / 4 * 16, rank ^ 1));
        float4 x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = load_cluster(other + j * 256);
        const float own_lse = memory.lse()[row];
        const float its_lse = in_four < 2 ? (in_four == 0 ? lse.x : lse.y) : (in_four == 2 ? lse.z : lse.w);
        SoftmaxRow total{fmaxf(own_lse, its_lse), 0.0f};
        const float shift = total.shift(kLog2E);
        const float weight = Exp2()(own_lse * kLog2E - shift), its_weight = Exp2()(its_lse * kLog2E - shift);
        total.sum = weight + its_weight;
        const float inverse = total.inverse(), factor = weight * inverse, its_factor = its_weight * inverse;
        const float* const own = memory.exchange(rank) + at;
        const size_t output_row = static_cast<size_t>(request) * Shape::kRows + row;
        uint8_t* const to = a.o + (output_row * Shape::kLatent + rank * Shape::kHalf + column) * 2;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float4 y = *reinterpret_cast<const float4*>(own + j * 64);
            *reinterpret_cast<uint2*>(to + j * 128) = make_uint2(
                Bf16::pack(factor * y.x + its_factor * x[j].x, factor * y.y + its_factor * x[j].y),
                Bf16::pack(factor * y.z + its_factor * x[j].z, factor * y.w + its_factor * x[j].w));
        }
        if (rank == 0 && column == 0) a.lse[lse_index(a, request, row)] = total.lse(kLog2E);
    }
};
