// SPDX-License-Identifier: MIT
// FP8 operands stored [rows, k] with the rows contiguous (K outermost): the same interface as tile/fp8_k_innermost.h.
//
// A shared tile is 128 k of kRows contiguous bytes, swizzled. A fragment register must hold four consecutive k of one row, so
// the bytes have to be transposed on the way. ldmatrix.trans does it for byte pairs: from the 8x8 matrix of 8 k by 16 rows
// a lane gets k = 2t, 2t+1 of the rows 2g and 2g+1. Two such registers (eight k apart) and two prmt give one register with
// four k of row 2g and one with the same four of row 2g+1. That permutes K inside the 32 of an instruction, equally for A
// and B, and makes fragment row g mean 2g and g + 8 mean 2g + 1, which the output map below undoes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/cp_async.h"
#include "ptx/ldmatrix.h"
#include "ptx/permute_bytes.h"
#include "tile/fp8_product.h"
#include "tile/swizzle.h"

struct KOutermost {
    static constexpr int kBlockK = 128;

    /// Copies one [128, kRows] tile per K block. The operand's row count must be a multiple of 16.
    template <int kRows, int kThreads, bool kIsB>
    struct Copy {
        using Columns = Swizzle<kRows / 16>;
        static constexpr int kBytes = kBlockK * Columns::kRowBytes;
        static constexpr int kChunks = kRows / 16;
        static constexpr int kStep = kThreads / kChunks;   // k per pass
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
                cp_async_16(shared + destination + pass * kStep * Columns::kRowBytes, source + pass * kStep * pitch, valid);
            }
            source += kBlockK * pitch;
        }
    };

    /// Where this lane's ldmatrix addresses lie in a tile of kRows rows, for the warp whose part starts at row `first`.
    struct Fragments {
        int depth;       // byte offset of this lane's k
        int chunk;       // first chunk of the warp's part
        int key;
        int row_bytes;   // a compile-time constant once inlined

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
    static constexpr bool kOutermost = true;
    static constexpr int kRun = 4;
    __device__ __forceinline__ static int row_of(int tile, int half, int lane) { return tile * 16 + lane / 4 * 2 + half; }
    __device__ __forceinline__ static int column_of(int run, int lane) { return run * 16 + lane % 4 * 4; }
    __host__ __device__ static constexpr int tile_of(int run, int i) { return run * 2 + i % 2; }
    __host__ __device__ static constexpr int slot_of(int half, int i) { return half * 2 + i / 2; }
};
