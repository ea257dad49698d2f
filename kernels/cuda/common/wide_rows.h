// SPDX-License-Identifier: MIT
// Tiles of long rows of 16-bit elements in shared memory: layout, asynchronous copy, and the two ldmatrix address patterns.
//
// A row is kColumns elements, a multiple of 64, hence of the 128 bytes of all banks: without a swizzle every row would
// start at bank 0 and the eight rows that one ldmatrix reads would collide. Inside each 128-byte group the 16-byte chunk
// index is XOR-ed with row % 8. Byte (row, b) therefore lies at row * pitch + (b ^ ((row % 8) << 4)); tiles start at
// multiples of 128 bytes, so that a step of 32 bytes along a row is an XOR of a constant (`LaneRows`). Rows of 32 elements
// lie two to a group: there the four chunks of a row are XOR-ed with row / 2 % 4. Pairs of bytes count as one element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/cp_async.h"

/// threadIdx.x, hidden from the compiler: addresses made of it are computed where they are used (a few integer instructions)
/// instead of being kept in registers throughout a loop, where the accumulators leave none and they would spill.
__device__ __forceinline__ int recomputed_thread() {
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    return thread;
}

/// One lane's ldmatrix address in a 16-column block, and in every other block of the same rows: four XOR-ed copies, kept
/// in registers, make each further step a constant that folds into the load.
struct LaneRows {
    uint32_t address[4];  // 0, 32, 64 and 96 bytes along the row

    /// `first` is the address in the first 16 columns.
    __device__ __forceinline__ explicit LaneRows(uint32_t first)
        : address{first, first ^ 32u, first ^ 64u, first ^ 96u} {}

    /// The address `bytes` further along the row; a compile-time multiple of 32.
    __device__ __forceinline__ uint32_t at(int bytes) const {
        return address[bytes / 32 % 4] + static_cast<uint32_t>(bytes / 128 * 128);
    }
};

template <int kColumns>
struct WideRows {
    static_assert(
        kColumns == 32 || kColumns % 64 == 0,
        "a row must be half a 128-byte group, the span of the swizzle, or whole ones");
    static constexpr int kPitch = kColumns * 2;                        // bytes
    static constexpr int kRowChunks = kPitch < 128 ? kPitch / 16 : 8;  // of 16 bytes, of a row in one group
    using Lane = LaneRows;

    static __host__ __device__ __forceinline__ constexpr int bytes(int rows) { return rows * kPitch; }

    /// Byte offset of byte `byte` of row `row`.
    static __device__ __forceinline__ int offset(int row, int byte) {
        const int key = kRowChunks == 8 ? row & 7 : row >> 1 & 3;
        return row * kPitch + (byte ^ (key << 4));
    }

    /// Where this lane points ldmatrix.x4 for the 16 x 16 block at the tile's origin. Matrices: rows 0-7 | rows 8-15, then the
    /// same, 8 columns on. An A operand (rows are M: Q, P), or transposed a B operand whose rows are K (V): registers 0, 1
    /// serve the first eight columns, 2, 3 the next eight.
    static __device__ __forceinline__ int lane_offset_by_rows(int lane) { return offset(lane % 16, lane / 16 * 16); }

    /// The same for a B operand whose rows are N (keys). Matrices: columns 0-7 | columns 8-15 of rows 0-7, then of rows
    /// 8-15: registers 0, 1 serve the first eight keys, 2, 3 the next eight. (The other pattern holds the same matrices, but
    /// the tensor core wants an operand in neighbouring registers.)
    static __device__ __forceinline__ int lane_offset_by_columns(int lane) {
        return offset(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16);
    }

    /// Issue the copy of `kRows` rows by all `kThreads` threads, eight to a 128-byte group (four to a row of 64 bytes).
    /// `source` is row 0 of the tile, rows are `source_pitch` bytes apart; rows from `valid_rows` on are not read and become
    /// zero. Of a row kGroups 128-byte groups come, from kFirstGroup on; `source` begins with that one.
    template <int kRows, int kThreads, int kFirstGroup = 0, int kGroups = kPitch / (16 * kRowChunks)>
    static __device__ __forceinline__ void copy_async(
        uint32_t tile, const uint8_t* source, uint32_t source_pitch, int valid_rows) {
        copy_async_as<kRows, kThreads, kFirstGroup, kGroups>(
            recomputed_thread(), tile, source, source_pitch, valid_rows);
    }

    /// The same by kThreads threads of a block, of which this is number `thread`.
    template <int kRows, int kThreads, int kFirstGroup = 0, int kGroups = kPitch / (16 * kRowChunks)>
    static __device__ __forceinline__ void copy_async_as(
        int thread, uint32_t tile, const uint8_t* source, uint32_t source_pitch, int valid_rows) {
        constexpr int kRowsPerPass = kThreads / kRowChunks;
        static_assert(
            kRowsPerPass % 8 == 0 && kRows % kRowsPerPass == 0,
            "each thread must meet only rows with the same swizzle key, and every pass must be whole");
        const int row = thread / kRowChunks, chunk = thread % kRowChunks * 16;
        const uint8_t* from = source + (row * source_pitch + chunk);  // a tile spans less than 4 GB
        const uint32_t to = tile + offset(row, chunk) + kFirstGroup * 128;
#pragma unroll
        for (int pass = 0; pass < kRows / kRowsPerPass; ++pass) {
            const bool valid = row + pass * kRowsPerPass < valid_rows;
#pragma unroll
            for (int group = 0; group < kGroups; ++group) {
                cp_async_16(to + pass * kRowsPerPass * kPitch + group * 128, from + group * 128, valid);
            }
            from += static_cast<size_t>(kRowsPerPass) * source_pitch;
        }
    }

    /// The same for rows that lie anywhere: `source(row)` is where a valid one begins.
    template <int kRows, int kThreads, class Source>
    static __device__ __forceinline__ void gather_async(uint32_t tile, Source source, int valid_rows) {
        constexpr int kRowsPerPass = kThreads / kRowChunks;
        static_assert(kRowsPerPass % 8 == 0 && kRows % kRowsPerPass == 0, "as above");
        const int thread = recomputed_thread();
        const int row = thread / kRowChunks, chunk = thread % kRowChunks * 16;
        const uint32_t to = tile + offset(row, chunk);
#pragma unroll
        for (int pass = 0; pass < kRows / kRowsPerPass; ++pass) {
            const int here = row + pass * kRowsPerPass;
            const uint8_t* const from = source(here < valid_rows ? here : 0) + chunk;
#pragma unroll
            for (int group = 0; group < kPitch / (16 * kRowChunks); ++group) {
                cp_async_16(to + pass * kRowsPerPass * kPitch + group * 128, from + group * 128, here < valid_rows);
            }
        }
    }
};
