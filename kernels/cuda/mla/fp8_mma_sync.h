// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on mma.sync: softmax, the kernel, and its launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "common/attention_mma.h"
#include "common/combine_splits.h"
#include "common/device.h"
#include "fp8.h"
#include "launch.h"
#include "mla/call.h"
#include "mla/fp8_mma_sync_scores.h"
#include "mla/fp8_shape.h"
#include "online_softmax.h"
#include "ptx/convert.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"

namespace mla {

// MLA decode over e4m3 codes: the softmax, and the weights that the codes of values are multiplied with.
//
// A value is code * scale, so the weight of group g's codes is w = p * scale[token][g], one plane for each group, in fp16.
// Scales may be any size: weights are divided by `reference`, a power of two that no scale seen so far exceeds (and the
// largest is no less than 1/32 of), and lie in 0 .. 2^15. Those down to 2^-17 keep the 8 bits that bf16 would have.

/// One thread's share of the softmax: four neighbouring tokens of one or more rows; kLanes lanes share a row.
template <class Tile>
struct Fp8Softmax {
    static constexpr int kLanes = Tile::kTokens / 4, kRowsPerPass = Tile::kThreads / kLanes;
    static constexpr int kPasses = (Tile::kRows + kRowsPerPass - 1) / kRowsPerPass;

    SoftmaxRow rows[kPasses];
    int limits[kPasses];  // tokens each row sees
    float reference = kLeastScale;

    static __device__ __forceinline__ bool takes_part() {
        return Tile::kRows * kLanes >= Tile::kThreads ||
               static_cast<int>(threadIdx.x) < Tile::kRows * kLanes;  // whole warps
    }
    static __device__ __forceinline__ int row(int pass) {
        return static_cast<int>(threadIdx.x) / kLanes + kRowsPerPass * pass;
    }

    __device__ __forceinline__ Fp8Softmax(const typename Tile::Arguments& a, int first_row, int length) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const int query = (first_row + row(pass)) / a.heads;
            limits[pass] = length - (a.causal ? a.seqlen_q - 1 - query : 0);
        }
    }

    /// Over the lanes of a row.
    static __device__ __forceinline__ float maximum(float x) {
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
        return x;
    }

    /// What a step starts from: this lane's scores, its tokens' scales.
    struct Scores {
        float s[kPasses][4];
        float4 scales[Fp8Row::kGroups];
        float change;  // for everything accumulated so far, because the reference was raised
    };
    /// What it leaves: weights, and the factors for what was accumulated so far.
    struct Weights {
        uint2 weights[kPasses][Fp8Row::kGroups];
        float factors[kPasses];
    };

    static __device__ __forceinline__ int share() { return static_cast<int>(threadIdx.x) % kLanes * 4; }

    __device__ __forceinline__ Scores load(const uint8_t* shared) {
        Scores scores;
        float bound = 0.0f;  // a sum: no less than the largest, and additions are cheaper than maxima
#pragma unroll
        for (int g = 0; g < Fp8Row::kGroups; ++g) {
            scores.scales[g] =
                *reinterpret_cast<const float4*>(shared + Tile::kTokenScales + (g * Tile::kTokens + share()) * 4);
            const float4& s = scores.scales[g];
            bound += (s.x + s.y) + (s.z + s.w);
        }
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            float4 x[Fp8Row::kGroups];
#pragma unroll
            for (int g = 0; g < Fp8Row::kGroups; ++g) {
                x[g] = *reinterpret_cast<const float4*>(
                    shared + Tile::kScores + g * Tile::kScorePlane + fp8_score_index<Tile>(row(pass), share()) * 4);
            }
            scores.s[pass][0] = (x[0].x + x[1].x) + (x[2].x + x[3].x);
            scores.s[pass][1] = (x[0].y + x[1].y) + (x[2].y + x[3].y);
            scores.s[pass][2] = (x[0].z + x[1].z) + (x[2].z + x[3].z);
            scores.s[pass][3] = (x[0].w + x[1].w) + (x[2].w + x[3].w);
        }
        // All lanes of all warps hold the same reference, since each row's lanes see all tokens.
        scores.change = 1.0f;
        if (__any_sync(0xffffffffu, bound > reference)) {
            const float before = reference;
            reference = fmaxf(before, power_of_two_above(maximum(bound)));
            scores.change = before / reference;
        }
        return scores;
    }

    /// Touches no memory.
    __device__ __forceinline__ Weights weigh(const Scores& scores, int first_token, float scale) {
        Weights result;
        const float multiplier = power_over(15, reference);
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            float s[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                s[i] = first_token + share() + i < limits[pass] ? scores.s[pass][i] : -INFINITY;
            }
            const float largest = maximum(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
            result.factors[pass] = rows[pass].raise(largest, scale, Exp2()) * scores.change;
            const float shift = rows[pass].shift(scale);
#pragma unroll
            for (int i = 0; i < 4; ++i) s[i] = Exp2()(s[i] * scale - shift);
            rows[pass].sum += (s[0] + s[1]) + (s[2] + s[3]);
#pragma unroll
            for (int i = 0; i < 4; ++i) s[i] *= multiplier;
#pragma unroll
            for (int g = 0; g < Fp8Row::kGroups; ++g) {
                const float4& by = scores.scales[g];
                result.weights[pass][g] =
                    make_uint2(Fp16::pack(s[0] * by.x, s[1] * by.y), Fp16::pack(s[2] * by.z, s[3] * by.w));
            }
        }
        return result;
    }

    static __device__ __forceinline__ void store(uint8_t* shared, const Weights& result) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            uint8_t* const w = shared + Tile::kWeights + row(pass) * Tile::kWeightPitch + share() * 2;
#pragma unroll
            for (int g = 0; g < Fp8Row::kGroups; ++g) {
                *reinterpret_cast<uint2*>(w + g * Tile::kWeightPlane) = result.weights[pass][g];
            }
            if (share() == 0) reinterpret_cast<float*>(shared + Tile::kFactors)[row(pass)] = result.factors[pass];
        }
    }

    /// Add up the lanes' shares, and leave the factors that normalise the output. `lse(row, value)` takes
    /// the result.
    template <typename Store>
    __device__ __forceinline__ void finish(uint8_t* shared, float scale, Store lse) {
        const float unit = float_from_bits(bits_from_float(reference) - (15u << 23));  // of a weight
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
            for (int step = kLanes / 2; step > 0; step /= 2) {
                rows[pass].sum += __shfl_xor_sync(0xffffffffu, rows[pass].sum, step);
            }
            if (static_cast<int>(threadIdx.x) % kLanes != 0) continue;
            reinterpret_cast<float*>(shared + Tile::kFactors)[row(pass)] = rows[pass].inverse() * unit;
            lse(row(pass), rows[pass].lse(scale));
        }
    }
};

// MLA decode over e4m3 codes on mma.sync: one block computes some query rows of one request over a range of tokens.
//
// See mla_decode_fp8/mma_sync.cu for the algorithm, the configurations and the launch.

/// Multiply accumulators by their row's factor from shared memory; nothing to do where all are 1.
template <class Tile>
__device__ __forceinline__ void scale_fp8_rows(
    float (&out)[Tile::kRowTiles][Tile::kOutTiles][4], const uint8_t* shared, int lane) {
    const float* const factors = reinterpret_cast<const float*>(shared + Tile::kFactors);
    float factor[Tile::kRowTiles][2];
    bool needed = false;
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            factor[r][half] = factors[16 * r + 8 * half + lane / 4];
            needed = needed || factor[r][half] != 1.0f;
        }
    }
    if (!__any_sync(0xffffffffu, needed)) return;
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int j = 0; j < Tile::kOutTiles; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) out[r][j][e] *= factor[r][e / 2];
        }
    }
}

/// out += weights x codes for this warp's columns; `base` and `tokens` are shared addresses.
///
/// The transposing ldmatrix gives lane (g, t) columns 2g, 2g + 1 of tokens 2t, 2t + 1, a byte each. Sorted by column they
/// are the fragments of two products: one for the even columns of 16, one for the odd ones. Accumulators 2c and 2c + 1 thus
/// belong to columns 16c + 4t + {0, 2} and {1, 3}.
template <class Tile>
__device__ __forceinline__ void multiply_codes(
    float (&out)[Tile::kRowTiles][Tile::kOutTiles][4], uint32_t base, uint32_t tokens, int warp, int lane) {
    constexpr int kColumns = Tile::kColumns;
    const uint32_t weights = base + Tile::kWeights + warp * kColumns / Fp8Row::kGroup * Tile::kWeightPlane +
                             lane % 16 * Tile::kWeightPitch + lane / 16 * 16;
    // Matrices: tokens 0-7 | tokens 8-15 | tokens 0-7, 16 bytes on | tokens 8-15, 16 bytes on.
    const uint32_t in_block = lane % 16 * Fp8Row::kBytes + lane / 16 * 16 + warp * kColumns;
#pragma unroll
    for (int token = 0; token < Tile::kTokens; token += 16) {
        const uint32_t values = tokens + token * Fp8Row::kBytes + in_block;
        uint32_t w[Tile::kRowTiles][4];
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) ldmatrix_x4(w[r], weights + r * 16 * Tile::kWeightPitch + token * 2);
#pragma unroll
        for (int chunk = 0; chunk < kColumns / 16; chunk += 2) {
            uint32_t codes[4];
            ldmatrix_x4_trans(codes, values + chunk * 16);
#pragma unroll
            for (int next = 0; next < 2; ++next) {
                const uint32_t left = permute_bytes<0x3120>(codes[2 * next], codes[2 * next]);
                const uint32_t right = permute_bytes<0x3120>(codes[2 * next + 1], codes[2 * next + 1]);
                const uint32_t even[2] = {unpack_e4m3_low(left), unpack_e4m3_low(right)};
                const uint32_t odd[2] = {unpack_e4m3_high(left), unpack_e4m3_high(right)};
#pragma unroll
                for (int r = 0; r < Tile::kRowTiles; ++r) {
                    Fp16::mma_m16n8k16(out[r][2 * (chunk + next)], w[r], even[0], even[1]);
                    Fp16::mma_m16n8k16(out[r][2 * (chunk + next) + 1], w[r], odd[0], odd[1]);
                }
            }
        }
    }
}

/// One piece of a request for the block's rows, from the first token to the stored output or part.
template <class Tile>
__device__ __forceinline__ void decode_fp8_piece(
    const typename Tile::Arguments& a, const DecodePiece& piece, int group, int row_tile, uint8_t* shared,
    AsyncRing<Tile>& ring) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int first_row = row_tile * Tile::kRows;
    const size_t part_row = first_row_of(a, piece.part(a.schedule, group)) + first_row;
    const bool empty = piece.steps.begin >= piece.steps.end;
    if (!piece.whole() && empty) {
        // The chunk's edge fell into the request's start: the merge must see that no token came, and reads no output.
        if (threadIdx.x < Tile::kRows) a.parts.lse[part_row + threadIdx.x] = -INFINITY;
        return;
    }
    const int length = a.schedule.tokens(piece.request);
    const size_t output_row = first_row_of(a, piece.request) + first_row;
    if (!empty) ring.begin(TokenSource::of(a, piece.request, piece.steps));
    Fp8Query<Tile> query;
    const Fp8Role<Tile> role(warp);
    query.load(a.q + output_row * (Fp8Row::kWidth * 2), role, lane);

    float out[Tile::kRowTiles][Tile::kOutTiles][4] = {};
    Fp8Softmax<Tile> softmax(a, first_row, length);
    for (int step = piece.steps.begin; step < piece.steps.end; ++step) {
        const uint32_t tokens = ring.acquire(step);
        Fp8Scores<Tile> scored;
        scored.multiply(shared, ring.base, tokens, role, lane, query);
        scored.store(shared, role, lane);
        Tile::meet();  // all groups' parts of the scores are there; everyone is done with the last weights
        if (softmax.takes_part()) {
            softmax.store(shared, softmax.weigh(softmax.load(shared), step * Tile::kTokens, a.scale));
        }
        Tile::meet();  // weights and factors are there; everyone is done with the scores
        scale_fp8_rows<Tile>(out, shared, lane);
        multiply_codes<Tile>(out, ring.base, tokens, warp, lane);
    }

    Tile::meet();  // the last factors are read, all slots are free
    if (softmax.takes_part()) {
        softmax.finish(shared, a.scale, [&](int row, float lse) {
            const size_t index = lse_index(a, piece.request, first_row + row);
            (piece.whole() ? a.lse[index] : a.parts.lse[part_row + row]) = lse;
        });
    }
    Tile::meet();
    scale_fp8_rows<Tile>(out, shared, lane);
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * r + 8 * half + lane / 4;
#pragma unroll
            for (int c = 0; c < Tile::kOutTiles / 2; ++c) {
                const int column = warp * Tile::kColumns + 16 * c + lane % 4 * 4;
                const float (&even)[4] = out[r][2 * c];
                const float (&odd)[4] = out[r][2 * c + 1];
                const float x[4] = {even[2 * half], odd[2 * half], even[2 * half + 1], odd[2 * half + 1]};
                if (piece.whole()) {
                    uint8_t* const at = a.o + ((output_row + row) * Fp8Row::kLatent + column) * 2;
                    *reinterpret_cast<uint2*>(at) = make_uint2(Bf16::pack(x[0], x[1]), Bf16::pack(x[2], x[3]));
                } else {
                    float* const at = a.parts.o + (part_row + row) * Fp8Row::kLatent + column;
                    *reinterpret_cast<float4*>(at) = make_float4(x[0], x[1], x[2], x[3]);
                }
            }
        }
    }
    Tile::meet();  // the next piece writes factors and queries
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) fp8_latent(const __grid_constant__ typename Tile::Arguments a) {
    uint8_t* const shared = dynamic_shared();
    AsyncRing<Tile> ring(shared_address(shared));
    const int group = static_cast<int>(blockIdx.x) / a.row_tiles, row_tile = static_cast<int>(blockIdx.x) % a.row_tiles;
    DecodeScheduler scheduler(a.schedule, group, static_cast<int>(threadIdx.x) % 32);
    DecodePiece piece;
    while (scheduler.next(a.schedule, piece)) decode_fp8_piece<Tile>(a, piece, group, row_tile, shared, ring);
}

template <class Tile>
__global__ void __launch_bounds__(kCombineWarps * 32)
    combine_fp8(const __grid_constant__ CombineArguments<DecodeSplits<typename Tile::Schedule>> a) {
    combine_block<Bf16, Fp8Row::kLatent>(a, [] {});
}

// Host side of MLA decode over e4m3 codes: how the batch is cut, and the launch.

/// Launch `a`, of which all but row_tiles, groups and the workspace is set, and the merge where the batch is cut. Returns 0 or
/// what the caller must return.
template <class Tile>
int launch_fp8(typename Tile::Arguments a, GroupCost cost, void* workspace, size_t workspace_bytes, void* queue) {
    const auto kernel = fp8_latent<Tile>;
    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    if (status == 0) {
        status = static_cast<int>(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
    }
    if (status != 0) return status;

    using Schedule = typename Tile::Schedule;
    const int rows = a.seqlen_q * a.heads, batch = a.schedule.batch;
    a.row_tiles = rows / Tile::kRows;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, Fp8Row::kLatent) - batch;
    a.schedule.groups = choose_groups(
        batch, a.max_blocks * (Fp8Row::kPage / Tile::kTokens), Schedule::kStartSteps, a.row_tiles, multiprocessors,
        most, {cost.start / Tile::kTokens, cost.merge / Tile::kTokens});
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, Schedule::part_count(groups, batch), rows, Fp8Row::kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    CombineArguments<DecodeSplits<Schedule>> merge = {
        {a.schedule, rows}, a.parts, a.o, a.lse, static_cast<long long>(batch) * rows, a.seqlen_q, a.heads, 1};
    const int merge_blocks = share_segments<Fp8Row::kLatent>(merge, groups / batch + 1);
    const auto combine = combine_fp8<Tile>;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.schedule.groups == 0) return launched;
    LAUNCH(combine, dim3(static_cast<unsigned>(merge_blocks)), dim3(kCombineWarps * 32), 0, queue)(merge);
    return LAUNCH_STATUS();
}

}  // namespace mla
