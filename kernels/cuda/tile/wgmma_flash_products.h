// SPDX-License-Identifier: MIT
// The products of a consumer warpgroup of the Hopper attention forward.
#pragma once

#include <cstdint>

#include "ptx/ldmatrix.h"
#include "ptx/mma_16bit.h"
#include "ptx/stmatrix.h"
#include "ptx/wgmma_16bit.h"
#include "tile/swizzle.h"
#include "tile/wgmma_flash_shape.h"

/// Issue scores = Q K^T.
template <class Shape>
__device__ __forceinline__ void issue_scores(
    float (&scores)[Shape::kKeys / 2], uint32_t query, uint32_t keys) {
    const uint64_t a = wgmma_operand(query), b = wgmma_operand(keys);
#pragma unroll
    for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
        Wgmma16<Shape::kKeys, typename Shape::Element>::product(
            scores, a + c / 4 * (Shape::kQueryPitch >> 4) + c % 4 * 2, b + c / 4 * (Shape::kKeyPitch >> 4) + c % 4 * 2, c > 0);
    }
}

/// One warp's share of Q K^T by mma.sync, whose sums lie as wgmma's, for when a step's scores were lost: no other warp needs to
/// take part.
template <class Shape>
__device__ __forceinline__ void multiply_again(
    float (&scores)[Shape::kKeys / 2], uint32_t query, uint32_t keys, int warp, int lane) {
    // Where 16 bytes of a row lie, eight columns.
    const auto chunk = [](uint32_t rows, int pitch, int row, int column) {
        return rows + column / 8 * pitch + Swizzle<8>::offset(row, column % 8);
    };
#pragma unroll 1   // with few registers
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
        float d[4] = {};
#pragma unroll 1
        for (int c = 0; c < Shape::kHeadDim / 8; c += 4) {
            uint32_t a[4], b[4];
            ldmatrix_x4(b, chunk(keys, Shape::kKeyPitch, 8 * j + lane % 8, c + lane / 8));
            ldmatrix_x4(a, chunk(query, Shape::kQueryPitch, warp * 16 + lane % 16, c + lane / 16));
            Shape::Element::mma_m16n8k16(d, a, b[0], b[1]);
            ldmatrix_x4(a, chunk(query, Shape::kQueryPitch, warp * 16 + lane % 16, c + 2 + lane / 16));
            Shape::Element::mma_m16n8k16(d, a, b[2], b[3]);
        }
#pragma unroll
        for (int i = 0; i < Shape::kKeys / 2; ++i) {
            if (i / 4 == j) scores[i] = d[i % 4];
        }
    }
    __syncwarp();   // all lanes have read
}

/// Issue out += P V, or out = P V unless `add`.
template <class Shape>
__device__ __forceinline__ void issue_output(
    float (&out)[Shape::kHeadDim / 2], const uint32_t (&probabilities)[Shape::kKeys / 16][4], uint32_t values,
    bool add = true) {
    const uint64_t b = wgmma_operand_transposed(values, Shape::kKeyPitch);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / 16; ++i) {
        Wgmma16<Shape::kHeadDim, typename Shape::Element, true>::product(out, probabilities[i], b + i * 128, i > 0 || add);
    }
}

/// The same with P in shared memory.
template <class Shape>
__device__ __forceinline__ void issue_output(
    float (&out)[Shape::kHeadDim / 2], uint32_t probabilities, uint32_t values, bool add = true) {
    const uint64_t a = wgmma_operand(probabilities), b = wgmma_operand_transposed(values, Shape::kKeyPitch);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / 16; ++i) {
        Wgmma16<Shape::kHeadDim, typename Shape::Element, true>::product(
            out, a + i / 4 * (Shape::kProbabilityPitch >> 4) + i % 4 * 2, b + i * 128, i > 0 || add);
    }
}

/// Store 16 columns of a warp's rows of P, packed as the A operand in registers is, where a product finds them.
template <class Shape>
__device__ __forceinline__ void store_probabilities(uint32_t probabilities, int columns, const uint32_t (&packed)[4], int thread) {
    const uint32_t box = probabilities + columns / 4 * Shape::kProbabilityPitch;
    stmatrix_x4(box + Swizzle<8>::offset(thread / 32 % 4 * 16 + thread % 16, columns % 4 * 2 + thread % 32 / 16), packed);
}
