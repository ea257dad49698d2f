// SPDX-License-Identifier: MIT
// Tiles of fp8 keys and values on their way to LDS, for flash_attention_fp8/mfma.hip: keys as they are, values transposed.
#pragma once

#include "isa/buffer.h"
#include "tile/half_panel.h"
#include "tile/query_rows.h"
#include "tile/transpose.h"

#ifndef QUERY_TILES
#define QUERY_TILES 2
#endif

template <int D_>
struct Fp8Shape {
    static constexpr int kD = D_;
    static constexpr int kThreads = 256;
    static constexpr int kKeys = kD == 256 ? 64 : 128;
    static constexpr int kKeyTiles = kKeys / 16;
    static constexpr int kQueryTiles = kD == 256 ? 1 : QUERY_TILES;  // of 16 queries, per wave
    static constexpr int kQueries = kThreads / kWaveSize * kQueryTiles * 16;
    static constexpr int kChunks = kD / kChunk;  // of a row
    static constexpr int kSteps = kD / 64;       // of two MFMAs each across a row
    static constexpr int kValueTiles = kD / 16;
    using Keys = Swizzle<kD, KeyOfInterleavedRows<kChunks>>;
    using Values = Swizzle<kKeys, KeyOfInterleavedRows<kKeys / kChunk>>;
};

template <class S>
struct alignas(16) Fp8Tiles {
    uint8_t k[S::kKeys * S::kD];
    uint8_t v[S::kD * S::kKeys];  // transposed
};

/// This thread's share of a K and a V tile on its way to LDS: of V a block of kLoads keys by 16 columns in the first two
/// waves, of K as many 16-byte pieces in the others.
template <class S>
class Fp8TileLoader {
    static constexpr int kTasks = S::kThreads / 2;
    static constexpr int kLoads = S::kKeys * S::kChunks / kTasks;
    static constexpr int kKeyStep = kTasks / S::kChunks;
    static constexpr int kGroups = S::kKeys / kLoads;  // of keys, in V
    static_assert(kLoads == 4 || kLoads == 8, "dwords of four transposed keys");
    typedef uint32_t Column __attribute__((vector_size(kLoads), may_alias));

    const uint8_t* matrix_;  // first key of this head
    int pitch_, left_;
    int row_, step_, chunk_;  // load i is chunk_ of key row_ + i * step_
    bool on_v_;
    u32x4 held_[kLoads];

    /// Column `column` of the held block: its keys in one register or two.
    __device__ __forceinline__ void store_values(uint8_t* values) const {
        const int base = S::Values::offset(chunk_ * kChunk, row_ / kChunk) + row_ % kChunk;
#pragma unroll
        for (int dword = 0; dword < 4; ++dword) {
            u32x4 column[kLoads / 4];
#pragma unroll
            for (int part = 0; part < kLoads / 4; ++part)
                column[part] = transpose_bytes_4x4(
                    held_[4 * part][dword], held_[4 * part + 1][dword], held_[4 * part + 2][dword],
                    held_[4 * part + 3][dword]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                Column keys;
#pragma unroll
                for (int part = 0; part < kLoads / 4; ++part) keys[part] = column[part][i];
                *reinterpret_cast<Column*>(values + S::Values::at(base, dword * 4 + i, 0)) = keys;
            }
        }
    }

public:
    /// Pointers are to the first key of the head; `pitch` is bytes from a key to the next.
    __device__ __forceinline__ Fp8TileLoader(const uint8_t* k, const uint8_t* v, int keys, int pitch) {
        on_v_ = wave_id() < kTasks / kWaveSize;
        const int task = static_cast<int>(threadIdx.x) % kTasks;
        // Of V four lanes read side by side, and the next ones other keys: what 16 of them write then meets in no bank.
        chunk_ = on_v_ ? task % 4 + task / (4 * kGroups) * 4 : task % S::kChunks;
        row_ = on_v_ ? task / 4 % kGroups * kLoads : task / S::kChunks;
        step_ = on_v_ ? 1 : kKeyStep;
        pitch_ = pitch;
        left_ = keys;
        matrix_ = on_v_ ? v : k;
    }

    /// Request keys [first, first + kKeys); those beyond the sequence read as zero.
    __device__ __forceinline__ void load(int first) {
        const uint8_t* base = matrix_ + static_cast<size_t>(first) * static_cast<size_t>(pitch_);
        const int rows = left_ - first < S::kKeys ? left_ - first : S::kKeys;
        const BufferResource buffer = make_buffer(base, extent(rows, pitch_, S::kD));
#pragma unroll
        for (int i = 0; i < kLoads; ++i) held_[i] = buffer_load_16(buffer, (row_ + i * step_) * pitch_ + chunk_ * 16);
    }

    /// Wait for what was requested and put it into LDS.
    __device__ __forceinline__ void store(Fp8Tiles<S>& tiles) const {
        if (on_v_) {
            store_values(tiles.v);
        } else {
            const int base = S::Keys::offset(row_, chunk_);
#pragma unroll
            for (int i = 0; i < kLoads; ++i) write_chunk(tiles.k, S::Keys::at(base, i * kKeyStep, 0), held_[i]);
        }
    }
};
