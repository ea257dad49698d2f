// SPDX-License-Identifier: MIT
// Tiles of rows on their way to LDS, for flash_attention_bwd/mfma.hip: two matrices as they are, and transposed.
#pragma once

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/half_panel.h"
#include "tile/query_rows.h"
#include "tile/transpose.h"

template <int D_>
struct BackwardShape {
    static constexpr int kD = D_;
    static constexpr int kThreads = kD == 256 ? 512 : 256;
    static constexpr int kRows = 16 * kThreads / kD;  // of a tile: a thread brings 4 by 8 values of one of two matrices
    static constexpr int kRowTiles = kRows / 16;
    static constexpr int kSteps = kD / 32;
    static constexpr int kChunks = kD / kHalvesPerChunk;  // 16-byte chunks of a row
    static constexpr int kColumnTiles = kD / 16;
    // Tiles of 16 rows that a wave owns, as many as registers hold: K, V, dK and dV, or q, dout and dQ.
    static constexpr int kKeyTiles = kD == 64 ? 2 : 1, kQueryTiles = kD == 256 ? 1 : 2;
    static constexpr int kKeys = kThreads / kWaveSize * kKeyTiles * 16;  // of a workgroup
    static constexpr int kQueries = kThreads / kWaveSize * kQueryTiles * 16;
    using Rows = KeyPanel<kD>;
    using Columns = ValuePanel<kRows>;
};

/// Two tiles with the same rows: q and dout, or k and v. `Transposed` of them lie there transposed as well.
template <class S, int Transposed>
struct alignas(16) BackwardTiles {
    uint8_t rows[2][S::kRows * S::kD * 2];
    uint8_t columns[Transposed][S::kRows * S::kD * 2];
};

/// This thread's share of two tiles on their way to LDS: 4 rows by 8 columns, of the first in half of the waves, of the
/// second in the others.
template <class S, int Transposed>
class BackwardTileLoader {
    static constexpr int kLoads = 4;
    static constexpr int kTasks = S::kThreads / 2;
    static_assert(kTasks * kLoads == S::kRows * S::kChunks, "one task per thread");

    int which_, row_, chunk_;
    u32x4 held_[kLoads];

public:
    /// Which rows and columns are neighbours in a wave is chosen so that stores of both kinds meet in few banks.
    __device__ __forceinline__ BackwardTileLoader() {
        const int task = static_cast<int>(threadIdx.x) % kTasks;
        which_ = wave_id() / (kTasks / kWaveSize);
        if constexpr (S::kD == 64) {
            chunk_ = task % 8;
            row_ = task / 8 * kLoads;
        } else {
            chunk_ = task % 4 + task / 16 % (S::kChunks / 4) * 4;
            row_ = (task >> 2 & 1) * 8 + (task >> 3 & 1) * 4 + task / (4 * S::kChunks) * 16;
        }
    }

    /// Request rows [first, first + kRows) of matrices of `rows` rows; those beyond read as zero.
    __device__ __forceinline__ void load(const uint16_t* one, const uint16_t* other, int first, int rows, int pitch) {
        const uint16_t* base = (which_ ? other : one) + static_cast<size_t>(first) * static_cast<size_t>(pitch / 2);
        const int left = rows - first < S::kRows ? rows - first : S::kRows;
        const BufferResource buffer = make_buffer(base, extent(left, pitch, S::kD * 2));
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            if constexpr (S::kD == 256) {  // few registers are left: one address, and a buffer that begins at row i
                const BufferResource later = make_buffer(base + i * (pitch / 2), extent(left - i, pitch, S::kD * 2));
                held_[i] = buffer_load_16(later, row_ * pitch + chunk_ * 16);
            } else {
                held_[i] = buffer_load_16(buffer, (row_ + i) * pitch + chunk_ * 16);
            }
        }
    }

    using Columns = u32x2[kHalvesPerChunk];

    /// Wait for what was requested and put it into LDS.
    __device__ __forceinline__ void store(BackwardTiles<S, Transposed>& tiles) const {
        store_rows(tiles);
        if (which_ >= Transposed) return;
        Columns column;
        transpose(column);
        store_columns(tiles, column);
    }

    /// The same in three steps.
    __device__ __forceinline__ void store_rows(BackwardTiles<S, Transposed>& tiles) const {
        const int base = computed_here(S::Rows::offset(row_, chunk_));
#pragma unroll
        for (int i = 0; i < kLoads; ++i) write_chunk(tiles.rows[which_], S::Rows::at(base, i, 0), held_[i]);
    }

    __device__ __forceinline__ void transpose(Columns& column) const { transpose_halves(held_, column); }

    __device__ __forceinline__ void store_columns(BackwardTiles<S, Transposed>& tiles, const Columns& column) const {
        const int to = computed_here(S::Columns::offset(chunk_ * kHalvesPerChunk, row_ / 8) + row_ % 8 * 2);
#pragma unroll
        for (int i = 0; i < kHalvesPerChunk; ++i)
            *reinterpret_cast<u32x2*>(tiles.columns[which_] + S::Columns::at(to, i, 0)) = column[i];
    }
};
