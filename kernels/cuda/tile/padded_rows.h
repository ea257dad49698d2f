// SPDX-License-Identifier: MIT
// Tiles of long rows of 16-bit elements in shared memory, 16 bytes of padding behind each row.
//
// The pitch is an odd multiple of 16 bytes, so that the eight rows of one ldmatrix start at different bank groups, as with
// the swizzle of tile/wide_rows.h. Unlike there a row stays contiguous, so a bulk copy can bring a whole row, and every
// step inside a tile is a constant that folds into the load. The price is the padding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/cp_async.h"

template <int kColumns>
struct PaddedRows {
    static constexpr int kRowBytes = kColumns * 2;
    static constexpr int kPitch = kRowBytes + 16;
    static_assert(kRowBytes % 32 == 0, "the pitch must be an odd multiple of 16 bytes");

    /// One lane's ldmatrix address in a 16-column block; those of other blocks are constants away.
    struct Lane {
        uint32_t first;
        __device__ __forceinline__ explicit Lane(uint32_t address) : first(address) {}
        __device__ __forceinline__ uint32_t at(int bytes) const { return first + bytes; }
    };

    static __host__ __device__ __forceinline__ constexpr int bytes(int rows) { return rows * kPitch; }
    static __device__ __forceinline__ int offset(int row, int byte) { return row * kPitch + byte; }

    /// As WideRows::lane_offset_by_rows: for an A operand, or transposed for a B operand whose rows are K.
    static __device__ __forceinline__ int lane_offset_by_rows(int lane) { return offset(lane % 16, lane / 16 * 16); }

    /// As WideRows::lane_offset_by_columns: for a B operand whose rows are N.
    static __device__ __forceinline__ int lane_offset_by_columns(int lane) {
        return offset(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16);
    }

    /// Issue the copy of `kRows` contiguous rows by all `kThreads` threads, eight to 128 bytes; rows from `valid_rows` on are
    /// not read and become zero.
    template <int kRows, int kThreads>
    static __device__ __forceinline__ void copy_async(uint32_t tile, const uint8_t* source, int valid_rows) {
        constexpr int kRowsPerPass = kThreads / 8;
        static_assert(kRowBytes % 128 == 0 && kRows % kRowsPerPass == 0, "every pass must be whole");
        const int thread = static_cast<int>(threadIdx.x);
        const int row = thread / 8, chunk = thread % 8 * 16;
        const uint8_t* const from = source + (row * kRowBytes + chunk);
        const uint32_t to = tile + offset(row, chunk);
#pragma unroll
        for (int pass = 0; pass < kRows / kRowsPerPass; ++pass) {
            const bool valid = row + pass * kRowsPerPass < valid_rows;
#pragma unroll
            for (int group = 0; group < kRowBytes / 128; ++group) {
                cp_async_16(to + pass * kRowsPerPass * kPitch + group * 128,
                            from + pass * kRowsPerPass * kRowBytes + group * 128, valid);
            }
        }
    }
};
