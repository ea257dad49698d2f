// SPDX-License-Identifier: MIT
// Block-scaled FP8 GEMM on CDNA3: one workgroup per tile of c (and per part of K), for either operand layout.
//
// Per K block of 128: the two panels go from registers to LDS, the next K block and its scales are requested into registers,
// and each wave multiplies its TilesM x 4 tiles of 16 x 16. A tile's four MFMA steps start from zero; then accumulator +=
// scale * partial. B is the first operand, A the second: a lane's results of a tile are consecutive columns of one row of c,
// which share one scale and leave in one store. Scales stay out of LDS: two 128 x 128 tiles fill a compute unit's exactly.
#pragma once

#include <type_traits>

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/bf16.h"
#include "tile/fp8_panel.h"
#include "tile/grid.h"

struct BlockScaledGemm {
    const uint8_t* a;
    const uint8_t* b;
    const float* a_scale;  // element (row, block) at block * m + row
    const float* b_scale;  // element (column / 128, block) at (column / 128) * b_scale_row + block * b_scale_k
    uint16_t* c;           // [m, n] bf16
    float* planes;         // [parts][plane_elements(m, n)] fp32; used when K is in several parts
    int m, n, k;
    int b_scale_row, b_scale_k;
};

/// Elements between two planes: m * n, rounded up so that every plane is 16-byte aligned.
__host__ __device__ __forceinline__ size_t plane_elements(int m, int n) {
    return (static_cast<size_t>(m) * static_cast<size_t>(n) + 3) / 4 * 4;
}

/// A tile of c: WavesM x 2 waves, each TilesM * 16 rows by TilesN * 16 columns: 64, or 128, which have one b_scale per K block.
template <int WavesM, int TilesM_, int TilesN_ = 4>
struct TileShape {
    static constexpr int kTilesM = TilesM_;
    static constexpr int kTilesN = TilesN_;
    static constexpr int kGroups = kTilesN / 4;  // of 64 columns: four tiles interleave
    static constexpr int kWavesN = 2;
    static constexpr int kM = WavesM * kTilesM * 16;
    static constexpr int kN = kWavesN * kTilesN * 16;
    static constexpr int kThreads = WavesM * kWavesN * kWaveSize;
    static constexpr int kBand = 4;  // tile rows that share B in L2
    static_assert(kTilesN == 4 || kTilesN == 8, "a wave's columns lie within one row of b_scale");
    static_assert(kTilesM % 2 == 0, "column_row interleaves pairs of tiles");
};

template <class Shape>
struct BlockScaledLds {
    Fp8Panel<Shape::kM> a;
    Fp8Panel<Shape::kN> b;
};

/// Accumulators of one wave.
template <class Shape>
struct WaveTile {
    f32x4 sum[Shape::kTilesM][Shape::kGroups][4];  // rows, columns
    int first_tile_m;                              // in units of 16 rows within the workgroup's tile
    int first_n;
    int base_a, base_b;  // where this lane reads its first row of each panel

    __device__ __forceinline__ WaveTile() : sum{} {
        first_tile_m = wave_id() / Shape::kWavesN * Shape::kTilesM;
        first_n = wave_id() % Shape::kWavesN * Shape::kTilesN * 16;
        base_a = fp8_operand_base(row(0));
        base_b = fp8_operand_base(first_n + interleaved_row(0, lane_id() % 16));
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile)
#pragma unroll
            for (int n = 0; n < Shape::kTilesN; ++n) sum[tile][n / 4][n % 4] = f32x4{};
    }

    __device__ __forceinline__ int row(int tile) const { return column_row(first_tile_m + tile, lane_id() % 16); }

    /// First of this lane's 16 consecutive columns of the first group; those of the next group are 64 further on.
    /// Computed where it is needed: in a loop over tiles it would take a register all the time.
    __device__ __forceinline__ int column() const { return first_n + computed_here(lane_id()) / 16 * 16; }

    /// sum += scale[tile] * (this K block's product of the tile).
    __device__ __forceinline__ void add_k_block(
        const BlockScaledLds<Shape>& lds, const float (&scale)[Shape::kTilesM]) {
        Fp8Operand a[Shape::kTilesM];
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile)
            a[tile] = read_fp8_operand(lds.a.bytes, base_a, column_row(tile, 0));
        set_wave_priority<1>();
#pragma unroll
        for (int tile_n = 0; tile_n < Shape::kTilesN; ++tile_n) {
            f32x4 product[Shape::kTilesM];
            multiply_k_block(read_fp8_operand(lds.b.bytes, base_b, interleaved_row(tile_n, 0)), a, product);
#pragma unroll
            for (int tile = 0; tile < Shape::kTilesM; ++tile)
                sum[tile][tile_n / 4][tile_n % 4] += product[tile] * scale[tile];
        }
        set_wave_priority<0>();
    }
};

/// a_scale * b_scale of the rows of c that this lane holds, one K block ahead of their use.
template <class Shape>
class WaveScales {
    const float* b_scale_;
    int row_[Shape::kTilesM];
    float a_[Shape::kTilesM];
    float b_;

public:
    __device__ __forceinline__
    WaveScales(const BlockScaledGemm& problem, const WaveTile<Shape>& wave, int first_row, int first_column)
        : b_scale_(
              problem.b_scale +
              static_cast<size_t>(first_column / kBlockK) * static_cast<size_t>(problem.b_scale_row)) {
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile) {
            const int row = first_row + wave.row(tile);
            row_[tile] = row < problem.m ? row : problem.m - 1;  // rows beyond the end are not stored
        }
    }

    __device__ __forceinline__ void load(const BlockScaledGemm& problem, int block) {
        const float* column = problem.a_scale + static_cast<size_t>(block) * static_cast<size_t>(problem.m);
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile) a_[tile] = column[row_[tile]];
        b_ = b_scale_[static_cast<size_t>(block) * static_cast<size_t>(problem.b_scale_k)];
    }

    __device__ __forceinline__ void products(float (&scale)[Shape::kTilesM]) const {
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile) scale[tile] = a_[tile] * b_;
    }
};

/// Store sixteen consecutive columns of one row, `left` (any sign) of which exist, at byte `offset` of a buffer of fp32.
/// `wide`: the row pitch allows 16-byte stores, and `left` is a multiple of their width.
__device__ __forceinline__ void store_fp32(
    BufferResource to, int offset, const f32x4 (&value)[4], int left, bool wide) {
    if (wide) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            buffer_store_16(to, 4 * i < left ? offset + 16 * i : kOutside, __builtin_bit_cast(u32x4, value[i]));
        return;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
        buffer_store_4(
            to, i < left ? offset + 4 * i : kOutside, __builtin_bit_cast(uint32_t, float{value[i / 4][i % 4]}));
}

/// The same, rounded to bf16.
__device__ __forceinline__ void store_bf16(
    BufferResource to, int offset, const f32x4 (&value)[4], int left, bool wide) {
    if (wide) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const f32x4 x = value[2 * i], y = value[2 * i + 1];
            const u32x4 packed = {
                pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3])};
            buffer_store_16(to, 8 * i < left ? offset + 16 * i : kOutside, packed);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) buffer_store_2(to, i < left ? offset + 2 * i : kOutside, to_bf16(value[i / 4][i % 4]));
}

/// What one workgroup computes: a tile of c, over some K blocks.
struct GemmPart {
    int first_row, first_column;
    int part, begin, end;  // of K: K blocks [begin, end)
};

/// What a launch computes: tiles [first, first + count) in the order of banded_tile, each as pieces x pieces tiles of its own.
struct TileRange {
    int first, count;
    int pieces = 1;
};

/// Of `rows` rows or columns from `first` on, how many there are of `count` in all.
__host__ __device__ __forceinline__ int rows_there(int first, int count, int rows) {
    const int left = count - first;
    return left < 0 ? 0 : left < rows ? left : rows;
}

/// The grid is tiles x parts: blockIdx.y is the part of K, `blocks_per_part` K blocks long (the last one may be shorter).
/// `index`: which of the range's pieces, in the order of workgroups.
template <class Shape>
__device__ __forceinline__ GemmPart
gemm_part(const BlockScaledGemm& problem, int blocks_per_part, TileRange range, int index) {
    const int pieces = range.pieces, rows = Shape::kM * pieces, columns = Shape::kN * pieces;
    const int at = die_contiguous(range.count * pieces * pieces, index);
    const int whole = uniform(at / (pieces * pieces)), piece = at - whole * pieces * pieces;
    const TileIndex tile = banded_tile<Shape::kBand>(
        range.first + whole, (problem.m + rows - 1) / rows, (problem.n + columns - 1) / columns);
    const int piece_n = uniform(piece / pieces), piece_m = piece - piece_n * pieces;
    const int part = static_cast<int>(blockIdx.y);
    const int begin = part * blocks_per_part;
    const int all = problem.k / kBlockK;
    return {
        tile.m * rows + piece_m * Shape::kM, tile.n * columns + piece_n * Shape::kN, part, begin,
        begin + blocks_per_part < all ? begin + blocks_per_part : all};
}

/// All tiles of a problem.
template <class Shape>
__host__ __device__ __forceinline__ TileRange all_tiles(int m, int n) {
    return {0, ((m + Shape::kM - 1) / Shape::kM) * ((n + Shape::kN - 1) / Shape::kN)};
}

template <class Shape>
__device__ __forceinline__ GemmPart gemm_part(const BlockScaledGemm& problem, int blocks_per_part, int index) {
    return gemm_part<Shape>(problem, blocks_per_part, all_tiles<Shape>(problem.m, problem.n), index);
}

/// Where a wave's results go: to c, or with kSplit as fp32 to this part's plane. Rows beyond the end lie beyond the buffer.
template <class Shape, bool kSplit>
struct ResultPlace {
    using Element = std::conditional_t<kSplit, float, uint16_t>;
    static constexpr int kBytes = sizeof(Element), kPerChunk = kChunk / kBytes;

    BufferResource buffer;
    int pitch;  // bytes of a row

    __device__ __forceinline__
    ResultPlace(const BlockScaledGemm& problem, const GemmPart& work, const WaveTile<Shape>& wave) {
        Element* target;
        if constexpr (kSplit)
            target = problem.planes + static_cast<size_t>(work.part) * plane_elements(problem.m, problem.n);
        else target = problem.c;
        const int rows = rows_there(work.first_row, problem.m, Shape::kM);
        pitch = problem.n * kBytes;
        buffer =
            make_buffer(target + static_cast<size_t>(work.first_row) * static_cast<size_t>(problem.n), rows * pitch);
        column_ = work.first_column + wave.column();
        columns_ = problem.n;
    }

    /// From the row's begin to this lane's first column of a group.
    __device__ __forceinline__ int bytes(int group) const { return (column_ + 64 * group) * kBytes; }
    /// Columns from there to the end, any sign.
    __device__ __forceinline__ int left(int group) const { return columns_ - column_ - 64 * group; }

private:
    int column_, columns_;
};

/// Write a wave's results where rows are aligned to 16 bytes. Lanes that hold rows of the same columns swap chunks, so that
/// one store writes whole lines of fewer rows.
template <class Shape, bool kSplit>
__device__ __forceinline__ void store_aligned(const ResultPlace<Shape, kSplit>& to, const WaveTile<Shape>& wave) {
    const int r = computed_here(lane_id()) % 16;
    const bool high = r & 8, middle = r & 4;
    const auto store = [&](int tile, int group, int lane, int chunk, u32x4 value) {  // of the row that `lane` held
        const int offset = column_row(wave.first_tile_m + tile, lane) * to.pitch + to.bytes(group) + chunk * kChunk;
        buffer_store_16(to.buffer, chunk * to.kPerChunk < to.left(group) ? offset : kOutside, value);
    };
#pragma unroll
    for (int t = 0; t < Shape::kTilesM; ++t) {
#pragma unroll
        for (int group = 0; group < Shape::kGroups; ++group) {
            const f32x4(&sum)[4] = wave.sum[t][group];
            if constexpr (kSplit) {
                u32x4 chunk[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) chunk[i] = __builtin_bit_cast(u32x4, sum[i]);
#pragma unroll
                for (int i = 0; i < 2; ++i) swap_8_apart(chunk[i], chunk[i + 2]);
                // Now chunk[0], chunk[1] are of the lower lane's row, chunk[2], chunk[3] of the upper one's.
#pragma unroll
                for (int upper = 0; upper < 2; ++upper) {
                    swap_mirrored(chunk[2 * upper], chunk[2 * upper + 1]);
                    const int mine = (r & 7) + 8 * upper;
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        store(t, group, middle == (i == 1) ? mine : mine ^ 7, 2 * high + middle, chunk[2 * upper + i]);
                }
            } else {
                u32x4 half[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const f32x4 x = sum[2 * i], y = sum[2 * i + 1];
                    half[i] = u32x4{
                        pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3])};
                }
                swap_8_apart(half[0], half[1]);
#pragma unroll
                for (int i = 0; i < 2; ++i) store(t, group, (r & 7) + 8 * i, high, half[i]);
            }
        }
    }
}

/// Write a wave's results, whatever their alignment.
template <class Shape, bool kSplit>
__device__ __forceinline__ void store_tile(
    const BlockScaledGemm& problem, const GemmPart& work, const WaveTile<Shape>& wave) {
    const ResultPlace<Shape, kSplit> to(problem, work, wave);
#pragma unroll
    for (int t = 0; t < Shape::kTilesM; ++t) {
#pragma unroll
        for (int group = 0; group < Shape::kGroups; ++group) {
            const int offset = wave.row(t) * to.pitch + to.bytes(group);
            const bool wide = problem.n % to.kPerChunk == 0;
            if constexpr (kSplit) store_fp32(to.buffer, offset, wave.sum[t][group], to.left(group), wide);
            else store_bf16(to.buffer, offset, wave.sum[t][group], to.left(group), wide);
        }
    }
}

template <class Layout, class Shape, bool kSplit>
__global__ void __launch_bounds__(Shape::kThreads, 2) block_scaled_gemm(BlockScaledGemm problem, int blocks_per_part) {
    __shared__ BlockScaledLds<Shape> lds;

    const GemmPart work = gemm_part<Shape>(problem, blocks_per_part, static_cast<int>(blockIdx.x));
    typename Layout::template Loader<Shape::kM, Shape::kN, Shape::kThreads> loader(
        problem, work.first_row, work.first_column);
    WaveTile<Shape> wave;
    WaveScales<Shape> scales(problem, wave, work.first_row, work.first_column);
    loader.load(work.begin);
    scales.load(problem, work.begin);
    for (int block = work.begin; block < work.end; ++block) {
        float scale[Shape::kTilesM];
        scales.products(scale);
        loader.store(lds.a, lds.b);
        __syncthreads();
        if (block + 1 < work.end) {
            loader.load(block + 1);
            scales.load(problem, block + 1);
        }
        wave.add_k_block(lds, scale);
        __syncthreads();
    }
    store_tile<Shape, kSplit>(problem, work, wave);
}
