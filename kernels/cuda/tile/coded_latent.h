// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on mma.sync: one block computes some query rows of one request over a range of tokens.
//
// See mla_decode_fp8/mma_sync.cu for the algorithm, the configurations and the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/permute_bytes.h"
#include "ptx/shared_address.h"
#include "tile/coded_latent_ring.h"
#include "tile/coded_latent_scores.h"
#include "tile/coded_latent_softmax.h"
#include "tile/decode_rows.h"
#include "tile/combine_splits.h"

/// Multiply accumulators by their row's factor from shared memory; nothing to do where all are 1.
template <class Tile>
__device__ __forceinline__ void scale_coded_rows(
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
    const uint32_t weights = base + Tile::kWeights + warp * kColumns / CodedRow::kGroup * Tile::kWeightPlane +
        lane % 16 * Tile::kWeightPitch + lane / 16 * 16;
    // Matrices: tokens 0-7 | tokens 8-15 | tokens 0-7, 16 bytes on | tokens 8-15, 16 bytes on.
    const uint32_t in_block = lane % 16 * CodedRow::kBytes + lane / 16 * 16 + warp * kColumns;
#pragma unroll
    for (int token = 0; token < Tile::kTokens; token += 16) {
        const uint32_t values = tokens + token * CodedRow::kBytes + in_block;
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
__device__ __forceinline__ void decode_coded_piece(
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
    CodedQuery<Tile> query;
    const CodedRole<Tile> role(warp);
    query.load(a.q + output_row * (CodedRow::kWidth * 2), role, lane);

    float out[Tile::kRowTiles][Tile::kOutTiles][4] = {};
    CodedSoftmax<Tile> softmax(a, first_row, length);
    for (int step = piece.steps.begin; step < piece.steps.end; ++step) {
        const uint32_t tokens = ring.acquire(step);
        CodedScores<Tile> scored;
        scored.multiply(shared, ring.base, tokens, role, lane, query);
        scored.store(shared, role, lane);
        Tile::meet();  // all groups' parts of the scores are there; everyone is done with the last weights
        if (softmax.takes_part()) {
            softmax.store(shared, softmax.weigh(softmax.load(shared), step * Tile::kTokens, a.scale));
        }
        Tile::meet();  // weights and factors are there; everyone is done with the scores
        scale_coded_rows<Tile>(out, shared, lane);
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
    scale_coded_rows<Tile>(out, shared, lane);
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * r + 8 * half + lane / 4;
#pragma unroll
            for (int c = 0; c < Tile::kOutTiles / 2; ++c) {
                const int column = warp * Tile::kColumns + 16 * c + lane % 4 * 4;
                const float(&even)[4] = out[r][2 * c];
                const float(&odd)[4] = out[r][2 * c + 1];
                const float x[4] = {even[2 * half], odd[2 * half], even[2 * half + 1], odd[2 * half + 1]};
                if (piece.whole()) {
                    uint8_t* const at = a.o + ((output_row + row) * CodedRow::kLatent + column) * 2;
                    *reinterpret_cast<uint2*>(at) = make_uint2(Bf16::pack(x[0], x[1]), Bf16::pack(x[2], x[3]));
                } else {
                    float* const at = a.parts.o + (part_row + row) * CodedRow::kLatent + column;
                    *reinterpret_cast<float4*>(at) = make_float4(x[0], x[1], x[2], x[3]);
                }
            }
        }
    }
    Tile::meet();  // the next piece writes factors and queries
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) coded_latent(const __grid_constant__ typename Tile::Arguments a) {
    uint8_t* const shared = dynamic_shared();
    AsyncRing<Tile> ring(shared_address(shared));
    const int group = static_cast<int>(blockIdx.x) / a.row_tiles, row_tile = static_cast<int>(blockIdx.x) % a.row_tiles;
    DecodeWalk walk(a.schedule, group, static_cast<int>(threadIdx.x) % 32);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) decode_coded_piece<Tile>(a, piece, group, row_tile, shared, ring);
}

template <class Tile>
__global__ void __launch_bounds__(kCombineWarps * 32)
combine_coded(const __grid_constant__ CombineArguments<DecodeParts<typename Tile::Schedule>> a) {
    combine_block<Bf16, CodedRow::kLatent>(a, [] {});
}
