// SPDX-License-Identifier: MIT
// Panels in LDS whose 16-byte chunks are permuted within their rows, so that the lanes which LDS serves together hit
// different banks although all rows begin at the same ones.
//
// Chunk c of row x lies at place c ^ key(x), the key being an exclusive-or of bits of x. So a constant part of a row or a
// chunk, in bits that the rest does not use, changes an address by constants only: `at` puts them on the address of the rest.
// Without that, compilers keep one register per address of an unrolled loop.
#pragma once

#include "isa/types.h"

constexpr int kChunk = 16;  // bytes

/// `Pitch` bytes per row; Key::of(row) is at most Key::kMask, which is 7, or 3 where rows have four chunks.
template <int Pitch, class Key>
struct Swizzle {
    static constexpr int kMask = Key::kMask;
    static_assert(Pitch % ((kMask + 1) * kChunk) == 0, "a row is whole groups of permuted chunks");

    /// Byte offset of chunk `chunk` of row `row`.
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * Pitch + (chunk & ~kMask) * kChunk + ((chunk & kMask) ^ Key::of(row)) * kChunk;
    }

    /// offset(r + row, c + chunk), given base = offset(r, c), where r and row have no common bits, nor have c and chunk.
    static __device__ __forceinline__ int at(int base, int row, int chunk) {
        return (base ^ ((chunk & kMask) ^ Key::of(row)) * kChunk) + row * Pitch + (chunk & ~kMask) * kChunk;
    }
};

__device__ __forceinline__ u32x4 read_chunk(const uint8_t* panel, int offset) {
    return *reinterpret_cast<const u32x4*>(panel + offset);
}

__device__ __forceinline__ void write_chunk(uint8_t* panel, int offset, u32x4 value) {
    *reinterpret_cast<u32x4*>(panel + offset) = value;
}
