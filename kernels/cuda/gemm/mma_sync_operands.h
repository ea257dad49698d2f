// SPDX-License-Identifier: MIT
// FP8 operands on mma.sync: fragments and their product, and how K-major and MN-major tiles reach the fragments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/swizzle.h"
#include "ptx/convert.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"

namespace gemm {

// A 16x32 by 32x8 product of e4m3 fragments, by the best mma.sync of the architecture.
//
// sm_89 has it as one instruction. sm_90 has none: there the fragments are converted to fp16 once, when loaded, and
// multiplied by two m16n8k16. The first takes bytes 0 and 1 of every register, the second bytes 2 and 3: another order of K,
// the same for both operands. fp16 holds every e4m3 value and the products are exact, so only the sum's rounding differs.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WARPWAVE_FP8_THROUGH_FP16 1
#else
#define WARPWAVE_FP8_THROUGH_FP16 0
#endif

/// kRegisters e4m3 registers of one operand's fragment, in the form the product wants: 4 for A, 2 for B.
template <int kRegisters>
struct Fp8Fragment {
#if WARPWAVE_FP8_THROUGH_FP16
    uint32_t low[kRegisters], high[kRegisters];

    __device__ __forceinline__ void set(int i, uint32_t bytes) {
        low[i] = unpack_e4m3_low(bytes);
        high[i] = unpack_e4m3_high(bytes);
    }
#else
    uint32_t bytes[kRegisters];

    __device__ __forceinline__ void set(int i, uint32_t value) { bytes[i] = value; }
#endif
};

/// d += a * b, with d as mma.m16n8k32 and mma.m16n8k16 agree on it.
__device__ __forceinline__ void fp8_product(float (&d)[4], const Fp8Fragment<4>& a, const Fp8Fragment<2>& b) {
#if WARPWAVE_FP8_THROUGH_FP16
    Fp16::mma_m16n8k16(d, a.low, b.low[0], b.low[1]);
    Fp16::mma_m16n8k16(d, a.high, b.high[0], b.high[1]);
#else
    mma_m16n8k32_e4m3(d, a.bytes, b.bytes);
#endif
}

// K-major FP8 operands, stored [rows, k] with k contiguous: global -> shared -> mma.m16n8k32 fragments -> places in the output.
//
// A shared tile is kRows rows of 128 bytes (one K block), swizzled. A 16x32 fragment of bytes is a 16x16 matrix of byte
// pairs, so ldmatrix delivers it without any shuffling.
//
// The rows of B enter shared memory permuted within groups of 32, such that the accumulators of four neighbouring n8 tiles
// hold, in one lane, eight adjacent columns of the output: 16-byte stores without a transposition.

struct KMajor {
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
        static constexpr int kStep = kThreads / 8;  // rows per pass: eight lanes take one row
        static constexpr int kPasses = kRows / kStep;
        static_assert(kRows % kStep == 0, "every pass must be full, or threads would copy past the tile");
        static_assert(kStep % Rows::kPeriod == 0, "passes must keep the swizzle key, or offsets are not multiples");
        static_assert((kStep & (kStep - 1)) == 0, "b_row distributes over the pass offset only for disjoint bits");

        const uint8_t* source;
        size_t pitch;
        int destination;
        int rows_left;  // of the operand from this thread's first row on

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
                cp_async_16(
                    shared + destination + pass * kStep * Rows::kRowBytes, source + row * pitch, row < rows_left);
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
    static constexpr bool kMnMajor = false;
    static constexpr int kRun = 8;
    __device__ __forceinline__ static int row_of(int tile, int half, int lane) {
        return tile * 16 + half * 8 + lane / 4;
    }
    __device__ __forceinline__ static int column_of(int run, int lane) { return run * 32 + lane % 4 * 8; }
    __host__ __device__ static constexpr int tile_of(int run, int i) {
        return run * 4 + i / 2;
    }  // n8 tile of element i
    __host__ __device__ static constexpr int slot_of(int half, int i) {
        return half * 2 + i % 2;
    }  // accumulator register
};

// MN-major FP8 operands, whose rows are contiguous: the same interface as KMajor.
//
// A shared tile is 128 k of kRows contiguous bytes, swizzled. A fragment register must hold four consecutive k of one row, so
// the bytes have to be transposed on the way. ldmatrix.trans does it for byte pairs: from the 8x8 matrix of 8 k by 16 rows
// a lane gets k = 2t, 2t+1 of the rows 2g and 2g+1. Two such registers (eight k apart) and two prmt give one register with
// four k of row 2g and one with the same four of row 2g+1. That permutes K inside the 32 of an instruction, equally for A
// and B, and makes fragment row g mean 2g and g + 8 mean 2g + 1, which the output map below undoes.

struct MnMajor {
    static constexpr int kBlockK = 128;

    /// Copies one [128, kRows] tile per K block. The operand's row count must be a multiple of 16.
    template <int kRows, int kThreads, bool kIsB>
    struct Copy {
        using Columns = Swizzle<kRows / 16>;
        static constexpr int kBytes = kBlockK * Columns::kRowBytes;
        static constexpr int kChunks = kRows / 16;
        static constexpr int kStep = kThreads / kChunks;  // k per pass
        static constexpr int kPasses = kBlockK / kStep;
        static_assert(kBlockK % kStep == 0, "every pass must be full, or threads would copy past the tile");
        static_assert(kStep % Columns::kPeriod == 0, "passes must keep the swizzle key, or offsets are not multiples");

        const uint8_t* source;
        size_t pitch;
        int destination;
        bool valid;

        __device__ __forceinline__ Copy(const uint8_t* operand, int first_row, int rows, int first_k, int /*k*/) {
            const int depth = threadIdx.x / kChunks;
            const int chunk = threadIdx.x % kChunks;
            pitch = static_cast<size_t>(rows);
            source = operand + (first_k + depth) * pitch + first_row + chunk * 16;
            destination = Columns::offset(depth, chunk);
            valid = first_row + chunk * 16 < rows;
        }

        /// Issue the copies of the next K block into the tile at `shared`; rows past the operand become zero.
        __device__ __forceinline__ void next(uint32_t shared) {
#pragma unroll
            for (int pass = 0; pass < kPasses; ++pass) {
                cp_async_16(
                    shared + destination + pass * kStep * Columns::kRowBytes, source + pass * kStep * pitch, valid);
            }
            source += kBlockK * pitch;
        }
    };

    /// Where this lane's ldmatrix addresses lie in a tile of kRows rows, for the warp whose part starts at row `first`.
    struct Fragments {
        int depth;  // byte offset of this lane's k
        int chunk;  // first chunk of the warp's part
        int key;
        int row_bytes;  // a compile-time constant once inlined

        template <int kRows>
        __device__ __forceinline__ static Fragments of(int first, int lane) {
            using Columns = Swizzle<kRows / 16>;
            return {lane * Columns::kRowBytes, first / 16, Columns::key(lane), Columns::kRowBytes};
        }

        /// 32 k of the 16 rows from 16 * tile on: pairs[r] holds the k of matrix r for rows 2g and 2g+1.
        __device__ __forceinline__ void load_pairs(uint32_t (&pairs)[4], uint32_t shared, int tile, int step) const {
            ldmatrix_x4_trans(pairs, shared + depth + step * 32 * row_bytes + (((chunk + tile) ^ key) << 4));
        }
    };

    struct FragmentsA : Fragments {
        template <int kRows>
        __device__ __forceinline__ static FragmentsA of(int first, int lane) {
            return {Fragments::of<kRows>(first, lane)};
        }

        __device__ __forceinline__ void load(Fp8Fragment<4>& a, uint32_t shared, int tile, int step) const {
            uint32_t d[4];
            load_pairs(d, shared, tile, step);
            a.set(0, permute_bytes<0x6420>(d[0], d[1]));
            a.set(1, permute_bytes<0x7531>(d[0], d[1]));
            a.set(2, permute_bytes<0x6420>(d[2], d[3]));
            a.set(3, permute_bytes<0x7531>(d[2], d[3]));
        }
    };

    struct FragmentsB : Fragments {
        template <int kRows>
        __device__ __forceinline__ static FragmentsB of(int first, int lane) {
            return {Fragments::of<kRows>(first, lane)};
        }

        /// Even and odd columns of the 16 from 16 * pair on.
        __device__ __forceinline__ void load(
            Fp8Fragment<2>& even, Fp8Fragment<2>& odd, uint32_t shared, int pair, int step) const {
            uint32_t d[4];
            load_pairs(d, shared, pair, step);
            even.set(0, permute_bytes<0x6420>(d[0], d[1]));
            even.set(1, permute_bytes<0x6420>(d[2], d[3]));
            odd.set(0, permute_bytes<0x7531>(d[0], d[1]));
            odd.set(1, permute_bytes<0x7531>(d[2], d[3]));
        }
    };

    // The output, for lane = 4g + t: columns 2t and 2t+1 of the even tile and of the odd one interleave to four adjacent.
    static constexpr bool kMnMajor = true;
    static constexpr int kRun = 4;
    __device__ __forceinline__ static int row_of(int tile, int half, int lane) {
        return tile * 16 + lane / 4 * 2 + half;
    }
    __device__ __forceinline__ static int column_of(int run, int lane) { return run * 16 + lane % 4 * 4; }
    __host__ __device__ static constexpr int tile_of(int run, int i) { return run * 2 + i % 2; }
    __host__ __device__ static constexpr int slot_of(int half, int i) { return half * 2 + i / 2; }
};

}  // namespace gemm
