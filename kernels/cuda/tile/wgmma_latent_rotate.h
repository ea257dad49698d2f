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

constexpr int kRotatingWarps = 2;  // those beside the two that load

__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

/// Rotate four pairs: 8 bytes of columns i and i + 32 each, with their cosines and sines. Rounded once.
__device__ __forceinline__ void rotate_pairs(uint2& first, uint2& second, uint2 cosines, uint2 sines) {
    const auto rotate = [](uint32_t& a, uint32_t& b, uint32_t c, uint32_t s) {
        const float a0 = bf16_low(a), a1 = bf16_high(a), b0 = bf16_low(b), b1 = bf16_high(b);
        a = Bf16::pack(a0 * bf16_low(c) - b0 * bf16_low(s), a1 * bf16_high(c) - b1 * bf16_high(s));
        b = Bf16::pack(b0 * bf16_low(c) + a0 * bf16_low(s), b1 * bf16_high(c) + a1 * bf16_high(s));
    };
    rotate(first.x, second.x, cosines.x, sines.x);
    rotate(first.y, second.y, cosines.y, sines.y);
}

/// Rotate the last panel of all pages of all pieces. Each of the warps `warp` = 0 .. kRotatingWarps - 1.
template <class Shape>
__device__ __forceinline__ void rotate_pages(
    const LatentMemory<Shape>& memory, const LatentArguments& a, int group, int warp, int lane) {
    constexpr int kItems = Shape::kTokens * 8;  // four pairs each: the registers of these warps are few
    constexpr int kThreads = kRotatingWarps * 32, kBatch = 2;
    const int thread = warp * 32 + lane;
    uint32_t uses = 0;  // bit s: the parity of how often stage s was filled
    DecodeWalk walk(a.schedule, group, lane);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) {
        for (int page = 0; page < piece.steps.end - piece.steps.begin; ++page) {
            const int stage = page % 2, parity = static_cast<int>(uses >> stage & 1);
            uses ^= 1u << stage;
            const uint8_t* const rotations =
                a.rotations + static_cast<size_t>(piece.steps.begin + page) * Shape::kTokens * 128;
            uint8_t* const panel =
                memory.start + Shape::kStage + ((stage + 1) * Shape::kPanels - 1) * Shape::kPanelBytes;
#pragma unroll 1
            for (int begin = 0; begin * kThreads < kItems; begin += kBatch) {
                // Angles come from L2: some at a time, the first ones while the panel is on its way.
                uint2 cosines[kBatch], sines[kBatch];
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    const int item = min(thread + (begin + i) * kThreads, kItems - 1);
                    const uint2* const row = reinterpret_cast<const uint2*>(rotations + item / 8 * 128) + item % 8;
                    cosines[i] = __ldg(row);
                    sines[i] = __ldg(row + 8);
                }
                if (begin == 0) mbarrier_wait(memory.landed(stage), parity);
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    const int item = thread + (begin + i) * kThreads;
                    if (item >= kItems) continue;
                    const int token = item / 8, chunk = item % 8 / 2, half = item % 2 * 8;
                    uint2* const first = reinterpret_cast<uint2*>(panel + Swizzle<8>::offset(token, chunk) + half);
                    uint2* const second = reinterpret_cast<uint2*>(panel + Swizzle<8>::offset(token, chunk + 4) + half);
                    uint2 low = *first, high = *second;
                    rotate_pairs(low, high, cosines[i], sines[i]);
                    *first = low;
                    *second = high;
                }
            }
            fence_async_shared();  // products read through the asynchronous proxy, and so does the next load write
            __syncwarp();
            if (lane == 0) mbarrier_arrive(memory.full(stage, Shape::kPanels - 1));
        }
    }
}
