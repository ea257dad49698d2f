// SPDX-License-Identifier: MIT
// Where a 16-byte chunk of a tile lies in shared memory, so that eight rows of one chunk column never share a bank.
//
// A tile has rows of kChunks chunks (16 * kChunks bytes, no padding). ldmatrix reads one chunk column of eight consecutive
// rows at a time; unswizzled these all start at the same few banks. XOR-ing the chunk index with a key made of the row
// index spreads them over all eight 16-byte bank groups, and keeps whole rows (what cp.async writes) conflict-free, too.
#pragma once

template <int kChunks>
struct Swizzle {
    static_assert(
        kChunks == 1 || kChunks == 2 || kChunks == 4 || kChunks == 8,
        "a row must divide the 128 bytes of all banks, so that the rows which share a bank are equally spaced");
    static constexpr int kRowBytes = 16 * kChunks;
    static constexpr int kPeriod = 8;  // the key repeats every 8 rows

    __host__ __device__ static constexpr int key(int row) { return row / (8 / kChunks) % kChunks; }

    /// Byte offset of (row, chunk) from the tile's start, which must be 128-byte aligned.
    __host__ __device__ static constexpr int offset(int row, int chunk) {
        return row * kRowBytes + ((chunk ^ key(row)) << 4);
    }

    /// Whether each chunk column of eight consecutive rows touches every bank group exactly once.
    static constexpr bool conflict_free() {
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            int groups = 0;
            for (int row = 0; row < 8; ++row) groups |= 1 << (offset(row, chunk) / 16 % 8);
            if (groups != 0xff) return false;
        }
        return true;
    }
};

static_assert(
    Swizzle<1>::conflict_free() && Swizzle<2>::conflict_free() && Swizzle<4>::conflict_free() &&
        Swizzle<8>::conflict_free(),
    "the key must separate the rows that start at the same bank");
