// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on mma.sync: the ring of tokens, and the scores of a step.
#pragma once

#include <cstdint>

#include "common/attention_mma.h"
#include "fp8.h"
#include "mla/fp8_shape.h"
#include "online_softmax.h"
#include "ptx/convert.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"

namespace mla {

// How a piece's tokens come to shared memory: a ring of slots of 32 tokens, filled by cp.async.
//
// Tokens of a page are contiguous, and lie in a slot as they do in memory. Slots of the cache hold NaN behind a request's length:
// those rows are not read, and are zero before a step uses them. Page numbers are read ahead of their use, and never behind the
// length.
//
//   AsyncRing ring(...);                             // once per block
//   ring.begin(source);                              // of a piece
//   for each step: tokens = ring.acquire(step);      // they are there

/// Where a piece's tokens lie in global memory.
struct TokenSource {
    const uint8_t* cache;
    const int* table;  // the request's
    int length;        // tokens of the request
    int begin, end;    // steps of the piece

    template <class Arguments>
    static __device__ __forceinline__ TokenSource of(const Arguments& a, int request, KvRange steps) {
        return {
            a.cache, a.block_table + static_cast<size_t>(request) * a.max_blocks, a.schedule.tokens(request),
            steps.begin, steps.end};
    }
};

/// cp.async by all threads. A step is a slot.
template <class Tile>
struct AsyncRing {
    static constexpr int kAhead = Tile::kSlots - 1;  // steps under way besides the one in use
    uint32_t base;
    int slot = 0;  // of the next step
    int page = 0;  // of the step that is copied next
    TokenSource source{};

    __device__ __forceinline__ explicit AsyncRing(uint32_t shared) : base(shared) {}

    __device__ __forceinline__ int page_of(int step) const {
        return step < source.end ? __ldg(source.table + step * Tile::kTokens / Fp8Row::kPage) : 0;
    }

    /// Copies of `step` to slot `to`, from page `number`.
    __device__ __forceinline__ void fill(int step, int number, int to) {
        if (step < source.end) {
            const int token = step * Tile::kTokens;
            const size_t row = static_cast<size_t>(number) * Fp8Row::kPage + token % Fp8Row::kPage;
            constexpr int kChunks = Fp8Row::kBytes / 16;
            const int valid = min(kSlotTokens, source.length - token) * kChunks;
            for (int i = static_cast<int>(threadIdx.x); i < kSlotTokens * kChunks; i += Tile::kThreads) {
                cp_async_16(
                    base + to * Tile::kSlotBytes + i * 16, source.cache + row * Fp8Row::kBytes + i * 16, i < valid);
            }
        }
        cp_async_commit();  // also when empty: the waits count groups
    }

    /// Every warp is done with the piece before.
    __device__ __forceinline__ void begin(const TokenSource& piece) {
        source = piece;
        slot = 0;
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) fill(source.begin + ahead, page_of(source.begin + ahead), ahead);
        page = page_of(source.begin + kAhead);
    }

    /// Shared address of the step's first row.
    __device__ __forceinline__ uint32_t acquire(int step) {
        cp_async_wait<kAhead - 1>();
        Tile::meet();  // the step's tokens are there; everyone is done with the slot that is filled next
        fill(step + kAhead, page, slot + kAhead < Tile::kSlots ? slot + kAhead : slot + kAhead - Tile::kSlots);
        page = page_of(step + kAhead + 1);
        const uint32_t tokens = base + slot * Tile::kSlotBytes;
        slot = slot + 1 < Tile::kSlots ? slot + 1 : 0;
        return tokens;
    }
};

// MLA decode over e4m3 codes, first product: scores of a step's tokens, and the softmax that makes weights of them.
//
// Codes become fp16, exactly, on their way from shared memory to the tensor cores; scales are applied to what comes out:
//   score[row][token] = sum over groups g of scale[token][g] * (q . codes of g)[row][token] + (q . rotary)[row][token].
// Queries are bf16: a row's 128 columns of a group are divided by a power of two, so that fp16 holds them exactly.

/// Where a warp works while it computes scores.
template <class Tile>
struct Fp8Role {
    int group, first_token;

    __device__ __forceinline__ explicit Fp8Role(int warp)
        : group(warp % Fp8Row::kGroups), first_token(warp / Fp8Row::kGroups * Tile::kWarpTokens) {}
};

/// A warp's queries as A fragments, for rows g and g + 8 of each row tile (g = lane / 4).
///
/// ldmatrix on codes gives lane t = lane % 4 of a quad the four neighbouring columns 4t .. 4t + 3 of 16. Their product takes
/// them as its columns 2t, 2t + 1, 2t + 8, 2t + 9, and so does the fragment of the queries: a sum has no order.
template <class Tile>
struct Fp8Query {
    uint32_t fragments[Tile::kQueryFragments][Tile::kRowTiles][4];
    float factors[Tile::kRowTiles][2];  // what the rows' 128 columns were divided by

    /// Fragments from global memory.
    __device__ __forceinline__ void load(const uint8_t* q, const Fp8Role<Tile>& role, int lane) {
        const uint8_t* const corner = q + lane / 4 * (Fp8Row::kWidth * 2);
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) {
            uint32_t raw[2][Tile::kGroupSteps][2];
            uint32_t inverse[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint8_t* const row = corner + (16 * r + 8 * half) * (Fp8Row::kWidth * 2);
                float largest = 0.0f;
#pragma unroll
                for (int c = 0; c < Tile::kGroupSteps; ++c) {
                    const uint2 four = *reinterpret_cast<const uint2*>(
                        row + (role.group * Fp8Row::kGroup + 16 * c + lane % 4 * 4) * 2);
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
                uint32_t (&a)[4] = fragments[c][r];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int half = i % 2;
                    if (c < Tile::kGroupSteps) {
                        const uint32_t pair = raw[half][c < Tile::kGroupSteps ? c : 0][i / 2];
                        const float by = float_from_bits(inverse[half]);
                        a[i] = Fp16::pack(float_from_bits(pair << 16) * by, float_from_bits(pair & 0xffff0000u) * by);
                    } else {
                        a[i] = *reinterpret_cast<const uint32_t*>(
                            corner + (16 * r + 8 * half) * (Fp8Row::kWidth * 2) +
                            (Fp8Row::kLatent + 16 * role.group + lane % 4 * 2 + i / 2 * 8) * 2);
                    }
                }
            }
        }
    }
};

/// Index of a score in its group's [rows, tokens] plane: whole rows are read 16 bytes per lane, and the accumulators of
/// four rows are written without bank conflicts.
template <class Tile>
__device__ __forceinline__ int fp8_score_index(int row, int token) {
    return row * Tile::kTokens + (token ^ (row % 4 * 8));
}

/// One warp's part of a step's scores: computed and stored apart, so that other work may hide the products' latency.
template <class Tile>
struct Fp8Scores {
    static constexpr int kPairs = Tile::kWarpTokens / 16;  // ldmatrix.x4 brings 16 tokens
    float scores[Tile::kRowTiles][2 * kPairs][4];
    float2 scales[2 * kPairs];  // of this lane's tokens, 2t and 2t + 1 of each eight

    __device__ __forceinline__ void multiply(
        const uint8_t* shared, uint32_t base, uint32_t tokens, const Fp8Role<Tile>& role, int lane,
        const Fp8Query<Tile>& query);
    /// To the group's plane; and the group's scales, gathered from the tokens' rows.
    __device__ __forceinline__ void store(uint8_t* shared, const Fp8Role<Tile>& role, int lane) const;
};

/// `base` is the shared address of `shared`. Reads shared memory only.
template <class Tile>
__device__ __forceinline__ void Fp8Scores<Tile>::multiply(
    const uint8_t* shared, uint32_t base, uint32_t tokens, const Fp8Role<Tile>& role, int lane,
    const Fp8Query<Tile>& query) {
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int tile = 0; tile < 2 * kPairs; ++tile) {
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[r][tile][e] = 0.0f;
        }
    }
    // Matrices: tokens 0-7 | the same, 16 bytes on | tokens 8-15 | the same, 16 bytes on.
    const uint32_t in_block = (lane % 8 + lane / 16 * 8) * Fp8Row::kBytes + lane / 8 % 2 * 16;
    const uint32_t first = tokens + role.first_token * Fp8Row::kBytes + in_block;
    const auto keys = [&](int pair) { return first + 16 * pair * Fp8Row::kBytes; };
#pragma unroll
    for (int c = 0; c < Tile::kGroupSteps; c += 2) {
        uint32_t codes[kPairs][4];
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
            ldmatrix_x4(codes[pair], keys(pair) + role.group * Fp8Row::kGroup + c * 16);
        }
#pragma unroll
        for (int next = 0; next < 2; ++next) {
            const uint32_t (&q)[Tile::kRowTiles][4] = query.fragments[c + next];
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
                                  (tile % 2 * 8 + lane % 4 * 2) * Fp8Row::kBytes + Fp8Row::kScales + role.group * 4;
        const float left = *reinterpret_cast<const float*>(at);
        const float right = *reinterpret_cast<const float*>(at + Fp8Row::kBytes);
        scales[tile] = make_float2(left, right);
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
            for (int e = 0; e < 4; ++e) scores[r][tile][e] *= query.factors[r][e / 2] * (e % 2 == 0 ? left : right);
        }
    }
    {
        const uint32_t (&q)[Tile::kRowTiles][4] = query.fragments[Tile::kGroupSteps];
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
            uint32_t b[4];
            ldmatrix_x4(b, keys(pair) + Fp8Row::kRopeStart + role.group * 32);
#pragma unroll
            for (int r = 0; r < Tile::kRowTiles; ++r) {
                Bf16::mma_m16n8k16(scores[r][2 * pair], q[r], b[0], b[1]);
                Bf16::mma_m16n8k16(scores[r][2 * pair + 1], q[r], b[2], b[3]);
            }
        }
    }
}

template <class Tile>
__device__ __forceinline__ void Fp8Scores<Tile>::store(uint8_t* shared, const Fp8Role<Tile>& role, int lane) const {
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
                *reinterpret_cast<float2*>(plane + fp8_score_index<Tile>(row, token)) =
                    make_float2(scores[r][tile][2 * half], scores[r][tile][2 * half + 1]);
            }
        }
    }
}

}  // namespace mla
