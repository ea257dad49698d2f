// SPDX-License-Identifier: MIT
// The block-scaled FP8 product on mma.sync: producer, main loop and epilogue in one kernel, and the sum over split K.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "gemm/mma_sync_operands.h"
#include "gemm/problem.h"
#include "gemm/scheduler.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"

namespace gemm {

// The block-scaled FP8 product on mma.sync: one kernel for both operand layouts, all tile shapes and split K.
//
// A block of threads owns a kM x kN tile of c and walks its K blocks. Per K block the tensor cores sum 128 products into a
// partial (registers), which is then promoted: accumulator += scale * partial in fp32. That applies the scales and keeps the
// tensor core's short adder from seeing more than 128 terms. cp.async fills a ring of kStages tiles kStages - 1 K blocks
// ahead, with one barrier per K block: it says both that the tile to be read has arrived and that all warps have finished
// reading the one about to be refilled.
//
// With kSplit the grid's second dimension divides the K blocks; each block then writes its fp32 sums to its own plane of the
// workspace, and sum_planes adds the planes in order: no atomics, so repeated runs agree to the bit.

/// Row pitch of a split-K plane in elements: a multiple of the longest run, so that vector stores stay aligned and inside.
__host__ __device__ constexpr int plane_pitch(int n) { return ceil_div(n, 8) * 8; }

/// Tile kM x kN by kWarpsM x kWarpsN warps with a ring of kStages.
template <int kM_, int kN_, int kWarpsM_, int kWarpsN_, int kStages_>
struct TileShape {
    static constexpr int kM = kM_, kN = kN_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kStages = kStages_;
    static constexpr int kK = 128;
    static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
    static constexpr int kTilesM = kM / kWarpsM / 16;  // m16 tiles of a warp
    static constexpr int kTilesN = kN / kWarpsN / 8;   // n8 tiles of a warp
    static constexpr int kTileBytesA = kM * kK;
    static constexpr int kTileBytes = (kM + kN) * kK;
    static constexpr int kScales = kM + 4;  // per stage: one per row of A, one of B, padded to 16 bytes
    static constexpr int kSharedBytes = kStages * (kTileBytes + kScales * 4);

    static_assert(kTilesM * kWarpsM * 16 == kM && kTilesM >= 1, "warps must divide the rows into m16 tiles");
    static_assert(kTilesN * kWarpsN * 8 == kN && kTilesN % 4 == 0, "output runs span four n8 tiles of one warp");
    static_assert(128 % kN == 0, "a tile takes one B scale per K block, so it may not straddle two 128-column groups");
    static_assert(kThreads > kM, "threads 0..kM-1 copy the row scales and thread kM the column scale");
    static_assert(kStages >= 2, "one stage is read while at least one other fills");
    static_assert(kSharedBytes <= 99 * 1024, "sm_89 gives a block at most 99 KB of shared memory");
};

/// A warp's reader of one stage: adds all products of a K block to `partial`.
template <class Layout, class Shape>
struct WarpProduct {
    typename Layout::FragmentsA fragments_a;
    typename Layout::FragmentsB fragments_b;

    __device__ __forceinline__ WarpProduct(int warp_m, int warp_n, int lane)
        : fragments_a(Layout::FragmentsA::template of<Shape::kM>(warp_m * (Shape::kTilesM * 16), lane)),
          fragments_b(Layout::FragmentsB::template of<Shape::kN>(warp_n * (Shape::kTilesN * 8), lane)) {}

    __device__ __forceinline__ void operator()(
        float (&partial)[Shape::kTilesM][Shape::kTilesN][4], uint32_t shared_a, uint32_t shared_b) const {
#pragma unroll
        for (int step = 0; step < Shape::kK / 32; ++step) {
            Fp8Fragment<4> a[Shape::kTilesM];
            Fp8Fragment<2> b[Shape::kTilesN];
#pragma unroll
            for (int j = 0; j < Shape::kTilesN; j += 2) fragments_b.load(b[j], b[j + 1], shared_b, j / 2, step);
#pragma unroll
            for (int i = 0; i < Shape::kTilesM; ++i) fragments_a.load(a[i], shared_a, i, step);
#pragma unroll
            for (int i = 0; i < Shape::kTilesM; ++i) {
#pragma unroll
                for (int j = 0; j < Shape::kTilesN; ++j) fp8_product(partial[i][j], a[i], b[j]);
            }
        }
    }
};

/// Store `kRun` adjacent columns of one row of c; `vector` says that whole aligned runs may be stored.
template <int kRun>
__device__ __forceinline__ void store_bf16(uint16_t* c, const float (&run)[kRun], int columns, bool vector) {
    uint32_t packed[kRun / 2];
#pragma unroll
    for (int i = 0; i < kRun / 2; ++i) packed[i] = Bf16::pack(run[2 * i], run[2 * i + 1]);
    if (vector) {
        if constexpr (kRun == 8) {
            *reinterpret_cast<uint4*>(c) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        } else {
            static_assert(kRun == 4, "runs are 8 or 16 bytes of bf16");
            *reinterpret_cast<uint2*>(c) = make_uint2(packed[0], packed[1]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            if (i < columns) c[i] = static_cast<uint16_t>(packed[i / 2] >> (i % 2 * 16));
        }
    }
}

/// Blocks per multiprocessor to tell ptxas; 0 leaves it the choice. nvcc 13.5 forces one instance (64x128, split K, K
/// outermost) into 128 registers and spills 8 bytes on sm_90a; 13.0 fits it there.
template <class Layout, class Shape, bool kSplit>
constexpr int least_blocks() {
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1305
    return kSplit && Layout::kMnMajor && Shape::kM == 64 && Shape::kN == 128 ? 1 : 0;
#else
    return 0;
#endif
}

template <class Layout, class Shape, bool kSplit>
__global__ void __launch_bounds__(Shape::kThreads, (least_blocks<Layout, Shape, kSplit>()))
    block_scaled_gemm(const BlockScaledGemm p) {
    constexpr int kRun = Layout::kRun;
    constexpr int kRuns =
        Shape::kTilesN * 2 / kRun;  // runs per lane and row: a row of the warp's part is 4 * kRun * kRuns
    const int lane = threadIdx.x % 32;
    const int warp_m = threadIdx.x / 32 / Shape::kWarpsN;
    const int warp_n = threadIdx.x / 32 % Shape::kWarpsN;

    int tile_m, tile_n;
    tile_position(blockIdx.x, 8, ceil_div(p.m, Shape::kM), ceil_div(p.n, Shape::kN), tile_m, tile_n);
    const int first_m = tile_m * Shape::kM;
    const int first_n = tile_n * Shape::kN;
    const int all_blocks = p.k / Shape::kK;
    int first_block = 0, blocks = all_blocks;
    if constexpr (kSplit) {
        first_block = all_blocks * blockIdx.y / gridDim.y;
        blocks = all_blocks * (blockIdx.y + 1) / gridDim.y - first_block;
    }

    uint8_t* const shared = dynamic_shared();
    float* const scales = reinterpret_cast<float*>(shared + Shape::kStages * Shape::kTileBytes);
    const uint32_t tiles_address = shared_address(shared);
    const uint32_t scales_address = shared_address(scales);

    typename Layout::template Copy<Shape::kM, Shape::kThreads, false> copy_a(
        p.a, first_m, p.m, first_block * Shape::kK, p.k);
    typename Layout::template Copy<Shape::kN, Shape::kThreads, true> copy_b(
        p.b, first_n, p.n, first_block * Shape::kK, p.k);

    // Thread i < kM brings the scale of row i, thread kM the tile's column scale.
    const bool is_row_scale = threadIdx.x < Shape::kM;
    const bool has_scale = threadIdx.x <= Shape::kM;
    const bool scale_valid = !is_row_scale || first_m + static_cast<int>(threadIdx.x) < p.m;
    const size_t scale_step = is_row_scale ? p.m : p.b_scale_k;
    const float* scale_source = is_row_scale ? p.a_scale + first_m + threadIdx.x
                                             : p.b_scale + static_cast<size_t>(first_n / 128) * p.b_scale_row;
    scale_source += first_block * scale_step;

    const auto fill = [&](int stage) {
        const uint32_t tile = tiles_address + stage * Shape::kTileBytes;
        copy_a.next(tile);
        copy_b.next(tile + Shape::kTileBytesA);
        if (has_scale) {
            cp_async_4(scales_address + (stage * Shape::kScales + threadIdx.x) * 4, scale_source, scale_valid);
            scale_source += scale_step;
        }
    };

#pragma unroll
    for (int stage = 0; stage < Shape::kStages - 1; ++stage) {
        if (stage < blocks) fill(stage);
        cp_async_commit();  // also when empty: the wait below counts groups
    }

    const WarpProduct<Layout, Shape> product(warp_m, warp_n, lane);
    float accumulator[Shape::kTilesM][Shape::kTilesN][4] = {};
    int read = 0, write = Shape::kStages - 1;
    for (int block = 0; block < blocks; ++block) {
        cp_async_wait<Shape::kStages - 2>();
        __syncthreads();
        if (block + Shape::kStages - 1 < blocks) fill(write);
        cp_async_commit();

        float partial[Shape::kTilesM][Shape::kTilesN][4] = {};
        const uint32_t tile = tiles_address + read * Shape::kTileBytes;
        product(partial, tile, tile + Shape::kTileBytesA);

        const float* const stage_scales = scales + read * Shape::kScales;
        const float column_scale = stage_scales[Shape::kM];
#pragma unroll
        for (int i = 0; i < Shape::kTilesM; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_m * (Shape::kTilesM * 16) + Layout::row_of(i, half, lane);
                const float scale = stage_scales[row] * column_scale;
#pragma unroll
                for (int j = 0; j < Shape::kTilesN; ++j) {
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        accumulator[i][j][e] = fmaf(scale, partial[i][j][e], accumulator[i][j][e]);
                    }
                }
            }
        }
        read = read + 1 == Shape::kStages ? 0 : read + 1;
        write = write + 1 == Shape::kStages ? 0 : write + 1;
    }

    const bool vector = p.n % kRun == 0;
    const int warp_row = first_m + warp_m * (Shape::kTilesM * 16);
    const int warp_column = first_n + warp_n * (Shape::kTilesN * 8);
#pragma unroll
    for (int i = 0; i < Shape::kTilesM; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp_row + Layout::row_of(i, half, lane);
            if (row >= p.m) continue;
#pragma unroll
            for (int r = 0; r < kRuns; ++r) {
                const int column = warp_column + Layout::column_of(r, lane);
                if (column >= p.n) continue;
                float run[kRun];
#pragma unroll
                for (int e = 0; e < kRun; ++e) {
                    run[e] = accumulator[i][Layout::tile_of(r, e)][Layout::slot_of(half, e)];
                }
                if constexpr (kSplit) {
                    const int pitch = plane_pitch(p.n);
                    float* out = p.planes + (static_cast<size_t>(blockIdx.y) * p.m + row) * pitch + column;
#pragma unroll
                    for (int e = 0; e < kRun; e += 4) {
                        *reinterpret_cast<float4*>(out + e) = make_float4(run[e], run[e + 1], run[e + 2], run[e + 3]);
                    }
                } else {
                    store_bf16(p.c + static_cast<size_t>(row) * p.n + column, run, p.n - column, vector);
                }
            }
        }
    }
}

// Adds the fp32 planes of a product whose K was split over several blocks, always in the same order.

constexpr int kSumThreads = 128;
constexpr int kSumColumns = 4;  // per thread: one 16-byte load of each plane

/// c[i, j] = bf16(sum over s of planes[s][i][j]). One thread sums four adjacent columns; the grid covers m * pitch / 4.
__global__ void __launch_bounds__(kSumThreads)
    sum_planes(const float* __restrict__ planes, uint16_t* __restrict__ c, int m, int n, int splits) {
    const int pitch = plane_pitch(n);
    const size_t element = (static_cast<size_t>(blockIdx.x) * kSumThreads + threadIdx.x) * kSumColumns;
    const size_t plane = static_cast<size_t>(m) * pitch;
    if (element >= plane) return;
    const int row = static_cast<int>(element / pitch);
    const int column = static_cast<int>(element - static_cast<size_t>(row) * pitch);
    if (column >= n) return;

    const float4* source = reinterpret_cast<const float4*>(planes + element);
    float run[kSumColumns] = {};
#pragma unroll 8
    for (int s = 0; s < splits; ++s) {
        const float4 part = source[s * (plane / kSumColumns)];
        run[0] += part.x;
        run[1] += part.y;
        run[2] += part.z;
        run[3] += part.w;
    }
    store_bf16(c + static_cast<size_t>(row) * n + column, run, n - column, n % kSumColumns == 0);
}

}  // namespace gemm
