// SPDX-License-Identifier: MIT
// Attention forward from e4m3 on mma.sync (sm_89): producer, main loop and epilogue. Where a block works, and the splits of the
// keys, are those of attention/mma_sync_forward.h. See flash_attention_fp8/mma_sync.cu for the algorithm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/mma_sync_forward.h"
#include "ceil_div.h"
#include "common/quad.h"
#include "common/wide_rows.h"
#include "online_softmax.h"
#include "ptx/convert.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"

namespace attention {

constexpr int kSharedScaleTokens = 128;  // that share a scale, where blocks do
// Weights are 2^8 times exp(score - maximum) when they are rounded: e4m3 ends at 448, and weights are normal numbers down to 2^-14
// of the largest.
constexpr float kWeightShift = 8.0f;

/// The scales of an operand: one for all, one for each head, or one for each block of tokens and head.
struct OperandScales {
    const float* first;
    int per_batch, per_block, per_head;  // elements from one to the next

    /// `granularity` as in kernel.h: 0 tensor, 1 head, 2 block.
    static OperandScales of(const float* first, int granularity, int tokens, int heads) {
        const int blocks = granularity == 2 ? ceil_div(tokens, kSharedScaleTokens) : 1;
        const bool by_head = granularity != 0;
        return {first, by_head ? blocks * heads : 0, granularity == 2 ? heads : 0, by_head ? 1 : 0};
    }
    __device__ __forceinline__ const float* at(int batch, int head) const {
        return first + static_cast<size_t>(batch) * per_batch + head * per_head;
    }
};

struct Fp8ForwardArguments : ForwardArguments {
    OperandScales q_scale, k_scale, v_scale;
};

/// kWarps x 16 query rows by kKeys keys. kBlocks blocks share a multiprocessor. With kPacked the rows are pairs of a query and one
/// of 2^pack heads that read the same keys, the heads of a query one after the other; pack may be 0. With kQueryInRegisters the A
/// fragments of Q stay in registers; else they are read from shared memory for every key tile.
template <int kHeadDim_, int kWarps_, int kKeys_, int kBlocks_, bool kQueryInRegisters_, bool kPacked_>
struct Fp8ForwardTile {
    using Arguments = Fp8ForwardArguments;
    using Element = Bf16;                  // of the output
    using Rows = WideRows<kHeadDim_ / 2>;  // of codes in shared memory, in pairs
    static constexpr int kHeadDim = kHeadDim_, kKeys = kKeys_, kBlocks = kBlocks_;
    static constexpr bool kQueryInRegisters = kQueryInRegisters_, kPacked = kPacked_;
    static constexpr int kThreads = 32 * kWarps_, kWarpQueries = 16, kQueries = kWarps_ * kWarpQueries;
    static constexpr int kColumnSteps = kHeadDim / 32, kKeyTiles = kKeys / 8, kKeySteps = kKeys / 32;
    static constexpr int kOutChunks = kHeadDim / 16;
    static constexpr int kQueryBytes = Rows::bytes(kQueries), kKeyBytes = Rows::bytes(kKeys);
    static constexpr int kSharedBytes = kQueryBytes + 2 * 2 * kKeyBytes;
    static_assert(
        kKeys % 32 == 0 && kSharedScaleTokens % kKeys == 0, "P V advances 32 keys at a time, a step has one scale");
    static_assert(kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
};

/// What a warp has accumulated for its 16 rows, of which a lane holds parts of two.
template <class Tile>
struct Fp8Accumulators {
    // Of 16 columns a product has the even ones, another the odd ones: [chunk][odd][i] is column 16 chunk + 4 (lane % 4) +
    // 2 (i % 2) + odd of row i / 2.
    float out[Tile::kOutChunks][2][4];
    SoftmaxRow rows[2];  // maxima are exponents of two; sums are of weights, this lane's share
    float unit = 1.0f;   // the scale of values in whose units `out` is

    __device__ __forceinline__ Fp8Accumulators() : out{} {
        rows[0] = SoftmaxRow();
        rows[1] = SoftmaxRow();
    }
};

/// scores += Q K^T of codes. `queries` are this lane's `lane_offset_by_rows` addresses of the warp's queries, `keys` its
/// `lane_offset_by_columns` addresses of the key tile.
template <class Tile>
__device__ __forceinline__ void multiply_key_codes(
    float (&scores)[1][Tile::kKeyTiles][4], uint32_t (&query)[Tile::kQueryInRegisters ? Tile::kColumnSteps : 1][4],
    const LaneRows& queries, const LaneRows& keys) {
#pragma unroll
    for (int step = 0; step < Tile::kColumnSteps; ++step) {
        const int c = Tile::kQueryInRegisters ? step : 0;
        if constexpr (!Tile::kQueryInRegisters) ldmatrix_x4(query[c], queries.at(step * 32));
#pragma unroll
        for (int pair = 0; pair < Tile::kKeyTiles / 2; ++pair) {
            uint32_t b[4];
            ldmatrix_x4(b, keys.at(step * 32) + pair * 16 * Tile::Rows::kPitch);
            mma_m16n8k32_e4m3(scores[0][2 * pair], query[c], {b[0], b[1]});
            mma_m16n8k32_e4m3(scores[0][2 * pair + 1], query[c], {b[2], b[3]});
        }
    }
}

/// Turn scores into weights in place. `factors` make a row's scores exponents of two. `corrections`: what everything before is
/// to be multiplied with.
template <class Tile>
__device__ __forceinline__ void weigh_code_scores(
    float (&scores)[1][Tile::kKeyTiles][4], SoftmaxRow (&rows)[2], const float (&factors)[2], float (&corrections)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < Tile::kKeyTiles; ++j) {
            largest = fmaxf(largest, fmaxf(scores[0][j][2 * half], scores[0][j][2 * half + 1]));
        }
        SoftmaxRow& row = rows[half];
        corrections[half] = row.raise(quad_maximum(largest) * factors[half], 1.0f, Exp2());
        const float shift = kWeightShift - row.shift(1.0f);
#pragma unroll
        for (int j = 0; j < Tile::kKeyTiles; ++j) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float& score = scores[0][j][2 * half + e];
                score = Exp2()(fmaf(score, factors[half], shift));
                row.sum += score;
            }
        }
    }
}

/// out = out * corrections + P V. `values` are this lane's addresses of row lane of the value tile, columns 0 .. 15.
///
/// The tensor core wants four keys of a column in one register. A transposing ldmatrix moves pairs of bytes: lane (g, t) gets
/// columns 2g, 2g + 1 of keys 2t, 2t + 1. Of two such matrices, keys 0 .. 7 and 8 .. 15, one byte permute collects column 2g of keys
/// 2t, 2t + 1, 2t + 8, 2t + 9, and another one column 2g + 1: the even and the odd columns of 16 are a product each. That order of
/// keys is the one in which accumulators of the scores, rounded, lie in the registers of an A operand.
///
/// Ada's adder keeps 13 bits of fraction. A tile's keys are therefore added up from zero and then to `out` in fp32, by
/// the multiply-add that also corrects `out`.
template <class Tile>
__device__ __forceinline__ void multiply_value_codes(
    float (&out)[Tile::kOutChunks][2][4], const float (&weights)[1][Tile::kKeyTiles][4], const LaneRows& values,
    const float (&corrections)[2]) {
    uint32_t p[Tile::kKeySteps][4];
#pragma unroll
    for (int k = 0; k < Tile::kKeySteps; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* const left = weights[0][4 * k + i / 2 * 2] + i % 2 * 2;
            const float* const right = weights[0][4 * k + i / 2 * 2 + 1] + i % 2 * 2;
            p[k][i] = pack_e4m3(left[0], left[1], right[0], right[1]);
        }
    }
#pragma unroll
    for (int chunk = 0; chunk < Tile::kOutChunks; ++chunk) {
        float sums[2][4] = {};
#pragma unroll
        for (int k = 0; k < Tile::kKeySteps; ++k) {
            uint32_t v[4];
            ldmatrix_x4_trans(v, (values.at(chunk / 2 * 32) ^ (chunk % 2 * 16)) + k * 32 * Tile::Rows::kPitch);
            mma_m16n8k32_e4m3(sums[0], p[k], {permute_bytes<0x6420>(v[0], v[1]), permute_bytes<0x6420>(v[2], v[3])});
            mma_m16n8k32_e4m3(sums[1], p[k], {permute_bytes<0x7531>(v[0], v[1]), permute_bytes<0x7531>(v[2], v[3])});
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                out[chunk][odd][i] = fmaf(out[chunk][odd][i], corrections[i / 2], sums[odd][i]);
            }
        }
    }
}

/// Normalise and write: bf16 rows and LSE, or the fp32 part of a split.
template <class Tile>
__device__ __forceinline__ void store_code_rows(const Fp8ForwardArguments& a, Fp8Accumulators<Tile>& sums) {
    const ForwardPlace place = forward_place<Tile>(a);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const size_t part_row = static_cast<size_t>(blockIdx.y) * a.batch * a.seqlen_q * a.heads_q;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        SoftmaxRow& state = sums.rows[half];
        state.sum = quad_sum(state.sum);
        const float factor = state.inverse() * sums.unit;
        const int row = warp * Tile::kWarpQueries + 8 * half + lane / 4;
        if (row >= place.rows) continue;
        const size_t output_row = place.position<Tile>(a, row);
        const size_t at = (a.splits > 1 ? part_row + output_row : output_row) * Tile::kHeadDim + lane % 4 * 4;
        if (lane % 4 == 0) {
            float& lse = a.splits > 1 ? a.parts.lse[part_row + output_row] : a.lse[place.lse_position<Tile>(a, row)];
            lse = state.lse(1.0f) - kWeightShift * kLn2;
        }
#pragma unroll
        for (int chunk = 0; chunk < Tile::kOutChunks; ++chunk) {
            const auto& [even, odd] = sums.out[chunk];
            const float4 x = {
                even[2 * half] * factor, odd[2 * half] * factor, even[2 * half + 1] * factor,
                odd[2 * half + 1] * factor};
            if (a.splits > 1) {
                *reinterpret_cast<float4*>(a.parts.o + at + 16 * chunk) = x;
            } else {
                *reinterpret_cast<uint2*>(a.o + (at + 16 * chunk) * 2) =
                    make_uint2(Bf16::pack(x.x, x.y), Bf16::pack(x.z, x.w));
            }
        }
    }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    fp8_forward(const __grid_constant__ Fp8ForwardArguments a) {
    using Rows = typename Tile::Rows;
    const ForwardPlace place = forward_place<Tile>(a);
    if (place.rows <= 0) return;  // a block without a tile
    const KvRange steps = forward_steps<Tile>(a, place);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int batch = static_cast<int>(blockIdx.x) / a.query_tiles / (a.heads_q >> (Tile::kPacked ? a.pack : 0));
    const int key_head = place.head / (a.heads_q / a.heads_k);
    const uint32_t key_pitch = static_cast<uint32_t>(a.heads_k) * Rows::kPitch;

    const uint32_t query_tile = shared_address(dynamic_shared());
    const auto stage = [&](int step) { return query_tile + Tile::kQueryBytes + (step & 1) * 2 * Tile::kKeyBytes; };
    size_t next =
        (place.key_start + static_cast<size_t>(steps.begin) * Tile::kKeys) * key_pitch + key_head * Rows::kPitch;
    const auto copy_next = [&](int step) {
        const int valid = place.keys - step * Tile::kKeys;
        Rows::template copy_async<Tile::kKeys, Tile::kThreads>(stage(step), a.k + next, key_pitch, valid);
        Rows::template copy_async<Tile::kKeys, Tile::kThreads>(
            stage(step) + Tile::kKeyBytes, a.v + next, key_pitch, valid);
        next += static_cast<size_t>(Tile::kKeys) * key_pitch;
        cp_async_commit();
    };

    // This lane's ldmatrix addresses of its warp's queries.
    const auto query_rows = [&]() {
        const int thread = recomputed_thread();
        const int offset = thread / 32 * Tile::kWarpQueries * Rows::kPitch + Rows::lane_offset_by_rows(thread % 32);
        return LaneRows(query_tile + offset);
    };
    uint32_t query[Tile::kQueryInRegisters ? Tile::kColumnSteps : 1][4];
    float query_factors[2] = {};  // what makes a row's scores, times the keys' scale, exponents of two
    const int first_row = warp * Tile::kWarpQueries;
    if (steps.begin < steps.end) {
        Rows::template gather_async<Tile::kQueries, Tile::kThreads>(
            query_tile, [&](int row) { return a.q + place.position<Tile>(a, row) * Rows::kPitch; }, place.rows);
        cp_async_commit();
        copy_next(steps.begin);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = min(first_row + 8 * half + lane / 4, place.rows - 1);
            query_factors[half] = a.scale * __ldg(
                                                a.q_scale.at(batch, place.head + place.head_of<Tile>(a, row)) +
                                                place.query<Tile>(a, row) / kSharedScaleTokens * a.q_scale.per_block);
        }
        if constexpr (Tile::kQueryInRegisters) {
            cp_async_wait<1>();
            __syncthreads();
            const LaneRows from = query_rows();
#pragma unroll
            for (int c = 0; c < Tile::kColumnSteps; ++c) ldmatrix_x4(query[c], from.at(c * 32));
        }
    }

    // How many keys this warp's first row sees, up to the end of the sequence; with kPacked, its last row. A warp behind the last
    // row sees none: it copies and leaves the tensor cores to the others.
    const int seen = first_row >= place.rows ? -Tile::kWarpQueries
                     : a.causal              ? place.seen<Tile>(a, first_row)
                                             : place.keys;
    const float* const key_scales = a.k_scale.at(batch, key_head);
    const float* const value_scales = a.v_scale.at(batch, key_head);
    Fp8Accumulators<Tile> sums;
    for (int step = steps.begin; step < steps.end; ++step) {
        cp_async_wait<0>();
        __syncthreads();  // the step's tiles are there, and every warp is done with the other stage
        if (step + 1 < steps.end) copy_next(step + 1);
        const int first_key = step * Tile::kKeys;
        if (first_key >= seen + Tile::kWarpQueries - 1) continue;  // beyond the causal limit of this warp's last row
        const int block = first_key / kSharedScaleTokens;
        const float key_scale = __ldg(key_scales + block * a.k_scale.per_block);
        const float value_scale = __ldg(value_scales + block * a.v_scale.per_block);

        float scores[1][Tile::kKeyTiles][4] = {};
        const int lane = recomputed_thread() % 32;
        const LaneRows keys(stage(step) + Rows::lane_offset_by_columns(lane));
        multiply_key_codes<Tile>(scores, query, query_rows(), keys);
        if (first_key + Tile::kKeys > min(place.keys, seen)) {
            int limits[1][2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + 8 * half + lane / 4;
                limits[0][half] = (a.causal ? min(place.keys, place.seen<Tile>(a, row)) : place.keys) - first_key;
            }
            mask_tile(scores, limits, lane);
        }
        const float factors[2] = {query_factors[0] * key_scale, query_factors[1] * key_scale};
        float corrections[2];
        weigh_code_scores<Tile>(scores, sums.rows, factors, corrections);
        if (value_scale != sums.unit) {
            const float change = sums.unit / value_scale;
            corrections[0] *= change;
            corrections[1] *= change;
            sums.unit = value_scale;
        }
        const LaneRows values(stage(step) + Tile::kKeyBytes + Rows::offset(lane, 0));
        multiply_value_codes<Tile>(sums.out, scores, values, corrections);
    }
    store_code_rows<Tile>(a, sums);
}

}  // namespace attention
