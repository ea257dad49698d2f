// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes, first product: scores of a step's tokens, and the softmax that makes weights of them.
//
// Codes become fp16, exactly, on their way from shared memory to the tensor cores; scales are applied to what comes out:
//   score[row][token] = sum over groups g of scale[token][g] * (q . codes of g)[row][token] + (q . rotary)[row][token].
// Queries are bf16: a row's 128 columns of a group are divided by a power of two, so that fp16 holds them exactly.
#pragma once

#include <cstdint>

#include "fp8.h"
#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/ldmatrix.h"
#include "ptx/mma_16bit.h"
#include "ptx/unpack_fp8.h"
#include "tile/attention_mma.h"
#include "tile/coded_latent_ring.h"
#include "tile/coded_latent_shape.h"

/// Where a warp works while it computes scores.
template <class Tile>
struct CodedRole {
    int group, first_token;

    __device__ __forceinline__ explicit CodedRole(int warp)
        : group(warp % CodedRow::kGroups), first_token(warp / CodedRow::kGroups * Tile::kWarpTokens) {}
};

/// A warp's queries as A fragments, for rows g and g + 8 of each row tile (g = lane / 4).
///
/// ldmatrix on codes gives lane t = lane % 4 of a quad the four neighbouring columns 4t .. 4t + 3 of 16. Their product takes
/// them as its columns 2t, 2t + 1, 2t + 8, 2t + 9, and so does the fragment of the queries: a sum has no order.
template <class Tile>
struct CodedQuery {
    uint32_t fragments[Tile::kQueryFragments][Tile::kRowTiles][4];
    float factors[Tile::kRowTiles][2];  // what the rows' 128 columns were divided by

    /// Fragments from global memory.
    __device__ __forceinline__ void load(const uint8_t* q, const CodedRole<Tile>& role, int lane) {
        const uint8_t* const corner = q + lane / 4 * (CodedRow::kWidth * 2);
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) {
            uint32_t raw[2][Tile::kGroupSteps][2];
            uint32_t inverse[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint8_t* const row = corner + (16 * r + 8 * half) * (CodedRow::kWidth * 2);
                float largest = 0.0f;
#pragma unroll
                for (int c = 0; c < Tile::kGroupSteps; ++c) {
                    const uint2 four = *reinterpret_cast<const uint2*>(
                        row + (role.group * CodedRow::kGroup + 16 * c + lane % 4 * 4) * 2);
                    raw[half][c][0] = four.x;
                    raw[half][c][1] = four.y;
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        largest = fmaxf(largest, fabsf(float_from_bits(raw[half][c][i] << 16)));
                        largest = fmaxf(largest, fabsf(float_from_bits(raw[half][c][i] & 0xffff0000u)));
                    }
                }
                inverse[half] = query_exponent(quad_maximum(largest));
                factors[r][half] = float_from_bits((254u << 23) - inverse[half]);
            }
#pragma unroll
            for (int c = 0; c < Tile::kQueryFragments; ++c) {
                uint32_t(&a)[4] = fragments[c][r];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int half = i % 2;
                    if (c < Tile::kGroupSteps) {
                        const uint32_t pair = raw[half][c < Tile::kGroupSteps ? c : 0][i / 2];
                        const float by = float_from_bits(inverse[half]);
                        a[i] = Fp16::pack(float_from_bits(pair << 16) * by, float_from_bits(pair & 0xffff0000u) * by);
                    } else {
                        a[i] = *reinterpret_cast<const uint32_t*>(
                            corner + (16 * r + 8 * half) * (CodedRow::kWidth * 2) +
                            (CodedRow::kLatent + 16 * role.group + lane % 4 * 2 + i / 2 * 8) * 2);
                    }
                }
            }
        }
    }
};

/// Index of a score in its group's [rows, tokens] plane: whole rows are read 16 bytes per lane, and the accumulators of
/// four rows are written without bank conflicts.
template <class Tile>
__device__ __forceinline__ int coded_score_index(int row, int token) {
    return row * Tile::kTokens + (token ^ (row % 4 * 8));
}

/// One warp's part of a step's scores: computed and stored apart, so that other work may hide the products' latency.
template <class Tile>
struct CodedScores {
    static constexpr int kPairs = Tile::kWarpTokens / 16;  // ldmatrix.x4 brings 16 tokens
    float scores[Tile::kRowTiles][2 * kPairs][4];
    float2 scales[2 * kPairs];  // of this lane's tokens, 2t and 2t + 1 of each eight

    __device__ __forceinline__ void multiply(
        const uint8_t* shared, uint32_t base, uint32_t tokens, const CodedRole<Tile>& role, int lane,
        const CodedQuery<Tile>& query);
    /// To the group's plane; and the group's scales, gathered from the tokens' rows.
    __device__ __forceinline__ void store(uint8_t* shared, const CodedRole<Tile>& role, int lane) const;
};

/// `base` is the shared address of `shared`. Reads shared memory only.
template <class Tile>
__device__ __forceinline__ void CodedScores<Tile>::multiply(
    const uint8_t* shared, uint32_t base, uint32_t tokens, const CodedRole<Tile>& role, int lane,
    const CodedQuery<Tile>& query) {
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int tile = 0; tile < 2 * kPairs; ++tile) {
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[r][tile][e] = 0.0f;
        }
    }
    // Matrices: tokens 0-7 | the same, 16 bytes on | tokens 8-15 | the same, 16 bytes on.
    const uint32_t in_block = (lane % 8 + lane / 16 * 8) * CodedRow::kBytes + lane / 8 % 2 * 16;
    const uint32_t first = tokens + role.first_token * CodedRow::kBytes + in_block;
    const auto keys = [&](int pair) { return first + 16 * pair * CodedRow::kBytes; };
#pragma unroll
    for (int c = 0; c < Tile::kGroupSteps; c += 2) {
        uint32_t codes[kPairs][4];
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
            ldmatrix_x4(codes[pair], keys(pair) + role.group * CodedRow::kGroup + c * 16);
        }
#pragma unroll
        for (int next = 0; next < 2; ++next) {
            const uint32_t(&q)[Tile::kRowTiles][4] = query.fragments[c + next];
#pragma unroll
            for (int tile = 0; tile < 2 * kPairs; ++tile) {
                const uint32_t four = codes[tile / 2][tile % 2 * 2 + next];
                const uint32_t low = unpack_e4m3_low(four), high = unpack_e4m3_high(four);
#pragma unroll
                for (int r = 0; r < Tile::kRowTiles; ++r) Fp16::mma_m16n8k16(scores[r][tile], q[r], low, high);
            }
        }
    }
#pragma unroll
    for (int tile = 0; tile < 2 * kPairs; ++tile) {
        const uint8_t* const at = shared + (keys(tile / 2) - in_block - base) +
            (tile % 2 * 8 + lane % 4 * 2) * CodedRow::kBytes + CodedRow::kScales + role.group * 4;
        const float left = *reinterpret_cast<const float*>(at);
        const float right = *reinterpret_cast<const float*>(at + CodedRow::kBytes);
        scales[tile] = make_float2(left, right);
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[r][tile][e] *= query.factors[r][e / 2] * (e % 2 == 0 ? left : right);
        }
    }
    {
        const uint32_t(&q)[Tile::kRowTiles][4] = query.fragments[Tile::kGroupSteps];
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
            uint32_t b[4];
            ldmatrix_x4(b, keys(pair) + CodedRow::kRopeStart + role.group * 32);
#pragma unroll
            for (int r = 0; r < Tile::kRowTiles; ++r) {
                Bf16::mma_m16n8k16(scores[r][2 * pair], q[r], b[0], b[1]);
                Bf16::mma_m16n8k16(scores[r][2 * pair + 1], q[r], b[2], b[3]);
            }
        }
    }
}

template <class Tile>
__device__ __forceinline__ void CodedScores<Tile>::store(uint8_t* shared, const CodedRole<Tile>& role, int lane) const {
    float* const plane = reinterpret_cast<float*>(shared + Tile::kScores + role.group * Tile::kScorePlane);
    float* const gathered = reinterpret_cast<float*>(shared + Tile::kTokenScales) + role.group * Tile::kTokens;
    if (lane < 4) {
#pragma unroll
        for (int tile = 0; tile < 2 * kPairs; ++tile) {
            *reinterpret_cast<float2*>(gathered + role.first_token + 8 * tile + lane * 2) = scales[tile];
        }
    }
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int tile = 0; tile < 2 * kPairs; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = 16 * r + 8 * half + lane / 4;
                const int token = role.first_token + 8 * tile + lane % 4 * 2;
                *reinterpret_cast<float2*>(plane + coded_score_index<Tile>(row, token)) =
                    make_float2(scores[r][tile][2 * half], scores[r][tile][2 * half + 1]);
            }
        }
    }
}
