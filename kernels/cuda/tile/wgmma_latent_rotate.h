// SPDX-License-Identifier: MIT
// The warps that rotate keys to their tokens' positions, in shared memory, between TMA and the products (RoPE).
//
// Column i of a token's last 64 makes a pair with column i + 32: (a, b) becomes (a cos - b sin, b cos + a sin). They are the
// panel that is loaded first, about a page's time before its scores, so the rotation hides behind the products of the page
// before. The rest of a token is used as it lies in the cache.
#pragma once

#include <cstdint>

#include "ptx/mbarrier.h"
#include "ptx/mma_16bit.h"
#include "ptx/tma.h"
#include "tile/swizzle.h"
#include "tile/wgmma_latent_shape.h"

constexpr int kRotatingWarps = 3;  // those beside the one that loads

__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

/// Rotate eight pairs: a, b 16 bytes of columns i and i + 32 each, with their cosines and sines. Rounded once.
__device__ __forceinline__ void rotate_pairs(uint4& first, uint4& second, const uint4& cosines, const uint4& sines) {
    uint32_t* const a = &first.x;
    uint32_t* const b = &second.x;
    const uint32_t* const c = &cosines.x;
    const uint32_t* const s = &sines.x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float a0 = bf16_low(a[i]), a1 = bf16_high(a[i]), b0 = bf16_low(b[i]), b1 = bf16_high(b[i]);
        const float c0 = bf16_low(c[i]), c1 = bf16_high(c[i]), s0 = bf16_low(s[i]), s1 = bf16_high(s[i]);
        a[i] = Bf16::pack(a0 * c0 - b0 * s0, a1 * c1 - b1 * s1);
        b[i] = Bf16::pack(b0 * c0 + a0 * s0, b1 * c1 + a1 * s1);
    }
}

/// Rotate the last panel of all pages of all pieces. Each of the warps `warp` = 0 .. kRotatingWarps - 1.
template <class Shape>
__device__ __forceinline__ void rotate_pages(
    const LatentMemory<Shape>& memory, const LatentArguments& a, int group, int warp, int lane) {
    constexpr int kItems = Shape::kTokens * 4;  // eight pairs each
    uint32_t tile = 0;
    DecodeWalk walk(a.schedule, group, lane);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) {
        for (int page = piece.steps.begin; page < piece.steps.end; ++page, ++tile) {
            const int stage = static_cast<int>(tile % 2);
            const uint8_t* const rotations = a.rotations + static_cast<size_t>(page) * Shape::kTokens * 128;
            uint8_t* const panel =
                memory.start + Shape::kStage + ((stage + 1) * Shape::kPanels - 1) * Shape::kPanelBytes;
            mbarrier_wait(memory.landed(stage), tile / 2 % 2);
#pragma unroll 1
            for (int item = warp * 32 + lane; item < kItems; item += kRotatingWarps * 32) {
                const int token = item / 4, chunk = item % 4;
                const uint4* const row = reinterpret_cast<const uint4*>(rotations + token * 128);
                const uint4 cosines = __ldg(row + chunk), sines = __ldg(row + 4 + chunk);
                uint4* const first = reinterpret_cast<uint4*>(panel + Swizzle<8>::offset(token, chunk));
                uint4* const second = reinterpret_cast<uint4*>(panel + Swizzle<8>::offset(token, chunk + 4));
                uint4 low = *first, high = *second;
                rotate_pairs(low, high, cosines, sines);
                *first = low;
                *second = high;
            }
            fence_async_shared();  // products read through the asynchronous proxy, and so does the next load write
            __syncwarp();
            if (lane == 0) mbarrier_arrive(memory.full(stage, Shape::kPanels - 1));
        }
    }
}
