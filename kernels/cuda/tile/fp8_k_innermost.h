// SPDX-License-Identifier: MIT
// FP8 operands stored [rows, k] with k contiguous: global -> shared -> mma.m16n8k32 fragments -> places in the output.
//
// A shared tile is kRows rows of 128 bytes (one K block), swizzled. A 16x32 fragment of bytes is a 16x16 matrix of byte
// pairs, so ldmatrix delivers it without any shuffling.
//
// The rows of B enter shared memory permuted within groups of 32, such that the accumulators of four neighbouring n8 tiles
// hold, in one lane, eight adjacent columns of the output: 16-byte stores without a transposition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/cp_async.h"
#include "ptx/ldmatrix.h"
#include "tile/fp8_product.h"
#include "tile/swizzle.h"

struct KInnermost {
    static constexpr int kBlockK = 128;
    using Rows = Swizzle<kBlockK / 16>;

    /// Global row, within the tile, that shared row `row` holds. It moves bits and adds none, so
    /// b_row(x + y) == b_row(x) + b_row(y) where x and y have no set bit in common.
    __host__ __device__ static constexpr int a_row(int row) { return row; }
    __host__ __device__ static constexpr int b_row(int row) {
        return (row & ~31) | ((row & 6) << 2) | ((row >> 2) & 6) | (row & 1);
    }

    /// Copies one [kRows, 128] tile per K block, all threads of the block together.
    template <int kRows, int kThreads, bool kIsB>
    struct Copy {
        static constexpr int kBytes = kRows * Rows::kRowBytes;
        static constexpr int kStep = kThreads / 8;   // rows per pass: eight lanes take one row
        static constexpr int kPasses = kRows / kStep;
        static_assert(kRows % kStep == 0, "every pass must be full, or threads would copy past the tile");
        static_assert(kStep % Rows::kPeriod == 0, "passes must keep the swizzle key, or offsets are not multiples");
        static_assert((kStep & (kStep - 1)) == 0, "b_row distributes over the pass offset only for disjoint bits");

        const uint8_t* source;
        size_t pitch;
        int destination;
        int rows_left;   // of the operand from this thread's first row on

        __device__ __forceinline__ Copy(const uint8_t* operand, int first_row, int rows, int first_k, int k) {
            const int row = threadIdx.x / 8;
            const int chunk = threadIdx.x % 8;
            const int global_row = first_row + (kIsB ? b_row(row) : a_row(row));
            pitch = static_cast<size_t>(k);
            source = operand + global_row * pitch + first_k + chunk * 16;
            destination = Rows::offset(row, chunk);
            rows_left = rows - global_row;
        }

        /// Issue the copies of the next K block into the tile at `shared`; rows past the operand become zero.
        __device__ __forceinline__ void next(uint32_t shared) {
#pragma unroll
            for (int pass = 0; pass < kPasses; ++pass) {
                const int row = kIsB ? b_row(pass * kStep) : a_row(pass * kStep);
                cp_async_16(shared + destination + pass * kStep * Rows::kRowBytes, source + row * pitch, row < rows_left);
            }
            source += kBlockK;
        }
    };

    /// Where this lane's ldmatrix addresses lie in a tile, for the warp whose part starts at row `first`.
    struct FragmentsA {
        int rows;
        int swizzled;

        template <int kRows>
        __device__ __forceinline__ static FragmentsA of(int first, int lane) {
            // Matrices: rows 0-7 | 8-15 of the first 16 k, then the same of the second 16 k.
            return {(first + lane % 16) * Rows::kRowBytes, ((lane / 16) ^ Rows::key(lane)) << 4};
        }

        /// A[16 * tile .. +15][32 * step .. +31]
        __device__ __forceinline__ void load(Fp8Fragment<4>& a, uint32_t shared, int tile, int step) const {
            uint32_t d[4];
            ldmatrix_x4(d, shared + rows + tile * 16 * Rows::kRowBytes + (swizzled ^ (step << 5)));
#pragma unroll
            for (int i = 0; i < 4; ++i) a.set(i, d[i]);
        }
    };

    struct FragmentsB {
        int rows;
        int swizzled;

        template <int kRows>
        __device__ __forceinline__ static FragmentsB of(int first, int lane) {
            // Matrices: first and second 16 k of rows 0-7, then the same of rows 8-15.
            return {(first + lane % 8 + lane / 16 * 8) * Rows::kRowBytes, ((lane / 8 % 2) ^ Rows::key(lane)) << 4};
        }

        /// The two n8 tiles 2 * pair and 2 * pair + 1.
        __device__ __forceinline__ void load(
            Fp8Fragment<2>& even, Fp8Fragment<2>& odd, uint32_t shared, int pair, int step) const {
            uint32_t d[4];
            ldmatrix_x4(d, shared + rows + pair * 16 * Rows::kRowBytes + (swizzled ^ (step << 5)));
            even.set(0, d[0]);
            even.set(1, d[1]);
            odd.set(0, d[2]);
            odd.set(1, d[3]);
        }
    };

    // The output, for lane = 4g + t. Each (m16 tile, half) is one row; along N a lane owns runs of kRun adjacent columns.
    static constexpr bool kOutermost = false;
    static constexpr int kRun = 8;
    __device__ __forceinline__ static int row_of(int tile, int half, int lane) { return tile * 16 + half * 8 + lane / 4; }
    __device__ __forceinline__ static int column_of(int run, int lane) { return run * 32 + lane % 4 * 8; }
    __host__ __device__ static constexpr int tile_of(int run, int i) { return run * 4 + i / 2; }    // n8 tile of element i
    __host__ __device__ static constexpr int slot_of(int half, int i) { return half * 2 + i % 2; }  // accumulator register
};
