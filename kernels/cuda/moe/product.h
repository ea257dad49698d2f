// SPDX-License-Identifier: MIT
// One 128 x 128 tile of a product of fp16 matrices on mma.sync: rows of A anywhere in memory, B with K outermost, sums in fp32.
#pragma once

#include <cstdint>

#include "common/quad.h"
#include "common/swizzle.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"

namespace moe {

constexpr int kRows = 128, kPanelColumns = 64, kPanels = 2;  // of a tile: B comes in two panels of 64 columns
constexpr int kK = 32, kStages = 3;
constexpr int kWarpsM = 4, kWarpsN = 2, kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kBytesA = kRows * kK * 2, kPanelBytes = kK * kPanelColumns * 2;
constexpr int kStageBytes = kBytesA + kPanels * kPanelBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
static_assert(kSharedBytes <= 48 * 1024, "a launch may have this much without asking");

/// Where this thread's copies come from: two chunks of 16 bytes of A's rows, and one row of each panel's.
struct Copies {
    const uint16_t* a[2];  // null: zeros
    const uint16_t* b[kPanels];
    bool b_valid[kPanels];
    size_t b_step;  // elements of B from one K block to the next

    static __device__ __forceinline__ int a_row(int i) { return static_cast<int>(threadIdx.x) / 4 + i * 64; }
    static __device__ __forceinline__ int a_chunk() { return static_cast<int>(threadIdx.x) % 4; }
    static __device__ __forceinline__ int b_row() { return static_cast<int>(threadIdx.x) / 8; }
    static __device__ __forceinline__ int b_chunk() { return static_cast<int>(threadIdx.x) % 8; }

    /// Panels begin at `panel[i]` (first column of row 0), of which `left[i]` columns exist, a multiple of 8.
    __device__ __forceinline__ void of_b(
        const uint16_t* const (&panel)[kPanels], const int (&left)[kPanels], int pitch) {
#pragma unroll
        for (int i = 0; i < kPanels; ++i) {
            b[i] = panel[i] + static_cast<size_t>(b_row()) * pitch + b_chunk() * 8;
            b_valid[i] = b_chunk() * 8 < left[i];
        }
        b_step = static_cast<size_t>(kK) * pitch;
    }

    __device__ __forceinline__ void start(uint32_t stage, int block) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint16_t* const from = a[i] != nullptr ? a[i] + block * kK : b[0];
            cp_async_16(stage + Swizzle<4>::offset(a_row(i), a_chunk()), from, a[i] != nullptr);
        }
#pragma unroll
        for (int i = 0; i < kPanels; ++i) {
            const uint32_t to = stage + kBytesA + i * kPanelBytes + Swizzle<8>::offset(b_row(), b_chunk());
            cp_async_16(to, b_valid[i] ? b[i] + block * b_step : b[0], b_valid[i]);
        }
    }
};

/// Sums of a warp: 32 rows by eight tiles of 8 columns. With `Paired`, four tiles are of the first panel and the same four of the
/// second; otherwise a warp has 64 columns of one panel.
template <bool Paired>
struct WarpTile {
    static constexpr int kTiles = 8;
    float sum[2][kTiles][4];
    int warp_m, warp_n, lane;

    __device__ __forceinline__ WarpTile()
        : sum{}, warp_m(static_cast<int>(threadIdx.x) / 32 / kWarpsN),
          warp_n(static_cast<int>(threadIdx.x) / 32 % kWarpsN), lane(static_cast<int>(threadIdx.x) % 32) {}

    static constexpr __device__ int columns_of_panel() { return Paired ? 32 : 64; }
    __device__ __forceinline__ int panel(int tile) const { return Paired ? tile / 4 : warp_n; }
    /// First column of a tile within its panel.
    __device__ __forceinline__ int column(int tile) const { return Paired ? warp_n * 32 + tile % 4 * 8 : tile * 8; }
    /// Row of the block's tile that half `half` (0, 1) of row tile i is.
    __device__ __forceinline__ int row(int i, int half) const { return warp_m * 32 + i * 16 + half * 8 + lane / 4; }

    __device__ __forceinline__ void add(uint32_t stage) {
#pragma unroll
        for (int step = 0; step < kK / 16; ++step) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                ldmatrix_x4(a[i], stage + Swizzle<4>::offset(warp_m * 32 + i * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
            for (int j = 0; j < kTiles; j += 2) {
                uint32_t b[4];
                const uint32_t from = stage + kBytesA + panel(j) * kPanelBytes;
                ldmatrix_x4_trans(b, from + Swizzle<8>::offset(step * 16 + lane % 16, column(j) / 8 + lane / 16));
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    Fp16::mma_m16n8k16(sum[i][j], a[i], b[0], b[1]);
                    Fp16::mma_m16n8k16(sum[i][j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    /// All K blocks: a ring of stages, one barrier per block.
    __device__ __forceinline__ void run(const Copies& copies, int blocks) {
        const uint32_t ring = shared_address(dynamic_shared());
#pragma unroll
        for (int stage = 0; stage < kStages - 1; ++stage) {
            if (stage < blocks) copies.start(ring + stage * kStageBytes, stage);
            cp_async_commit();
        }
        for (int block = 0; block < blocks; ++block) {
            cp_async_wait<kStages - 2>();
            __syncthreads();
            const int ahead = block + kStages - 1;
            if (ahead < blocks) copies.start(ring + ahead % kStages * kStageBytes, ahead);
            cp_async_commit();
            add(ring + block % kStages * kStageBytes);
        }
    }
};

/// Store a row's four tiles (32 columns) as fp16, 16 bytes to a lane: `pair[i]` are this lane's two columns of tile i. Lanes
/// whose `valid` is false store nothing.
__device__ __forceinline__ void store_row(uint16_t* row, uint32_t (&pair)[4], int lane, bool valid) {
    transpose_quad(pair, lane);
    if (valid) *reinterpret_cast<uint4*>(row + lane % 4 * 8) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

}  // namespace moe
