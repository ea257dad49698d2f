// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes: the softmax, and the weights that the codes of values are multiplied with.
//
// A value is code * scale, so the weight of group g's codes is w = p * scale[token][g], one plane for each group, in fp16.
// Scales may be any size: weights are divided by `reference`, a power of two that no scale seen so far exceeds (and the
// largest is no less than 1/32 of), and lie in 0 .. 2^15. Those down to 2^-17 keep the 8 bits that bf16 would have.
#pragma once

#include <cstdint>

#include "fp8.h"
#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/mma_16bit.h"
#include "tile/attention_mma.h"
#include "tile/coded_latent_scores.h"
#include "tile/coded_latent_shape.h"

/// One thread's share of the softmax: four neighbouring tokens of one or more rows; kLanes lanes share a row.
template <class Tile>
struct CodedSoftmax {
    static constexpr int kLanes = Tile::kTokens / 4, kRowsPerPass = Tile::kThreads / kLanes;
    static constexpr int kPasses = (Tile::kRows + kRowsPerPass - 1) / kRowsPerPass;

    SoftmaxRow rows[kPasses];
    int limits[kPasses];  // tokens each row sees
    float reference = kLeastScale;

    static __device__ __forceinline__ bool takes_part() {
        return Tile::kRows * kLanes >= Tile::kThreads || static_cast<int>(threadIdx.x) < Tile::kRows * kLanes;  // whole warps
    }
    static __device__ __forceinline__ int row(int pass) {
        return static_cast<int>(threadIdx.x) / kLanes + kRowsPerPass * pass;
    }

    __device__ __forceinline__ CodedSoftmax(const typename Tile::Arguments& a, int first_row, int length) {
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
        float4 scales[CodedRow::kGroups];
        float change;  // for everything accumulated so far, because the reference was raised
    };
    /// What it leaves: weights, and the factors for what was accumulated so far.
    struct Weights {
        uint2 weights[kPasses][CodedRow::kGroups];
        float factors[kPasses];
    };

    static __device__ __forceinline__ int share() { return static_cast<int>(threadIdx.x) % kLanes * 4; }

    __device__ __forceinline__ Scores load(const uint8_t* shared) {
        Scores scores;
        float bound = 0.0f;  // a sum: no less than the largest, and additions are cheaper than maxima
#pragma unroll
        for (int g = 0; g < CodedRow::kGroups; ++g) {
            scores.scales[g] =
                *reinterpret_cast<const float4*>(shared + Tile::kTokenScales + (g * Tile::kTokens + share()) * 4);
            const float4& s = scores.scales[g];
            bound += (s.x + s.y) + (s.z + s.w);
        }
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            float4 x[CodedRow::kGroups];
#pragma unroll
            for (int g = 0; g < CodedRow::kGroups; ++g) {
                x[g] = *reinterpret_cast<const float4*>(
                    shared + Tile::kScores + g * Tile::kScorePlane + coded_score_index<Tile>(row(pass), share()) * 4);
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
            for (int g = 0; g < CodedRow::kGroups; ++g) {
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
            for (int g = 0; g < CodedRow::kGroups; ++g) {
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
