// SPDX-License-Identifier: MIT
// The ring of token tiles in shared memory that feeds MLA decode: copies run kStages - 1 tiles ahead of the products.
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.h"
#include "ptx/cp_async.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"

/// All threads of the block call every function, in step: issue fills the stage that was taken kStages - 1 tiles ago, so
/// a block-wide barrier must lie between the last use of that tile and issue.
template <typename Tile>
struct TokenRing {
    using Rows = typename Tile::Rows;
    uint8_t* shared;
    int issued = 0, taken = 0;  // tiles, since the kernel began

    __device__ __forceinline__ explicit TokenRing(uint8_t* shared_) : shared(shared_) {
        if constexpr (Tile::kBulk) {
            if (threadIdx.x == 0) {
#pragma unroll
                for (int stage = 0; stage < Tile::kStages; ++stage) mbarrier_init(barrier(stage), 1);
                mbarrier_fence_init();
            }
            __syncthreads();
        }
    }

    /// Start copying a tile whose first token is at `source`; rows from `tokens` on become zero. Nothing for tokens <= 0.
    __device__ __forceinline__ void issue(const uint8_t* source, int tokens) {
        const int stage = issued % Tile::kStages;
        if constexpr (Tile::kBulk) {
            if (tokens <= 0) return;
            const int rows = min(tokens, Tile::kTokens);
            if (threadIdx.x < 32) {
                const int row = static_cast<int>(threadIdx.x);
                if (row == 0) mbarrier_arrive_expect(barrier(stage), rows * Rows::kRowBytes);
                __syncwarp();  // the barrier expects the bytes before any can arrive
                if (row < rows) {
                    bulk_copy(shared_address(tile(stage)) + Rows::offset(row, 0), source + row * Rows::kRowBytes,
                              Rows::kRowBytes, barrier(stage));
                }
            }
            // A bulk copy cannot fill: zero the rest of a request's last tile, so that no masked score meets a NaN.
            constexpr int kChunks = Rows::kRowBytes / 16;
            for (int i = rows * kChunks + static_cast<int>(threadIdx.x); i < Tile::kTokens * kChunks; i += Tile::kThreads) {
                *reinterpret_cast<uint4*>(tile(stage) + Rows::offset(i / kChunks, i % kChunks * 16)) = uint4{};
            }
        } else {
            if (tokens > 0) {
                Rows::template copy_async<Tile::kTokens, Tile::kThreads>(shared_address(tile(stage)), source, tokens);
            }
            cp_async_commit();  // also when empty: the wait counts groups
        }
        ++issued;
    }

    /// Wait for the oldest tile not yet taken, and return its address. Visible to all threads behind a block-wide barrier.
    __device__ __forceinline__ uint32_t take() {
        const int stage = taken % Tile::kStages;
        if constexpr (Tile::kBulk) {
            mbarrier_wait(barrier(stage), taken / Tile::kStages & 1);
        } else {
            cp_async_wait<Tile::kStages - 2>();
        }
        ++taken;
        return shared_address(tile(stage));
    }

    /// Behind the last tile of a sequence; a block-wide barrier must follow before the next issue.
    __device__ __forceinline__ void drain() {
        if constexpr (Tile::kBulk) {
            bulk_copy_fence();  // the zeros of the last tile come before what the next sequence copies there
        } else {
            cp_async_wait<0>();  // empty groups
        }
        issued = taken;
    }

private:
    __device__ __forceinline__ uint8_t* tile(int stage) const { return shared + Tile::kStage + stage * Tile::kStageBytes; }
    __device__ __forceinline__ uint32_t barrier(int stage) const {
        return shared_address(shared + Tile::kBarriers + stage * 8);
    }
};
