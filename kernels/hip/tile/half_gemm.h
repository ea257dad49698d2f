// SPDX-License-Identifier: MIT
// One tile of a product of 16-bit matrices on CDNA3: 128 x 128 by four waves of 64 x 64, sums in fp32.
//
// A K block is 64 values, 128 bytes: the panels of tile/fp8_panel.h hold it, and a lane's two chunks are again four MFMA steps,
// of 16 values each. While a block is multiplied, the next one travels from memory into registers: two waves fetch A's rows,
// two fetch B. B is the first operand, A the second: a lane's results of a row tile are 16 consecutive columns of one row.
#pragma once

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/fp8_panel.h"
#include "tile/half.h"
#include "tile/half_panel.h"
#include "tile/transpose.h"

constexpr int kHalfBlockK = kBlockK / 2;  // values of K per panel
constexpr int kHalfRows = 128, kHalfColumns = 128;
constexpr int kHalfThreads = 256;

struct HalfLds {
    Fp8Panel<kHalfRows> a;
    Fp8Panel<kHalfColumns> b;
};

/// Whether this wave fetches B, and this thread's number among the 128 that fetch the same operand.
__device__ __forceinline__ bool fetches_b() { return wave_id() < 2; }
__device__ __forceinline__ int fetching_thread() { return static_cast<int>(threadIdx.x) % 128; }

/// This thread's share of a panel of rows whose K is innermost: eight chunks of 16 bytes, of rows 16 apart.
struct RowTask {
    static constexpr int kRows = 8, kRowStep = 16;
    static __device__ __forceinline__ int row(int i) { return fetching_thread() / 8 + i * kRowStep; }
    static __device__ __forceinline__ int chunk() { return fetching_thread() % 8; }

    /// Where row i's chunk begins: `row_offset(row)` is the byte offset of a row in `buffer`, kOutside where there is none.
    template <class RowOffset>
    static __device__ __forceinline__ void place(int (&offset)[kRows], RowOffset row_offset) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const int begin = row_offset(row(i));
            offset[i] = begin == kOutside ? kOutside : begin + chunk() * kChunk;
        }
    }

    static __device__ __forceinline__ void store(const u32x4 (&held)[kRows], uint8_t* panel) {
        const int base = Fp8Rows::offset(row(0), chunk());
#pragma unroll
        for (int i = 0; i < kRows; ++i) write_chunk(panel, Fp8Rows::at(base, i * kRowStep, 0), held[i]);
    }
};

/// This thread's share of a panel whose K is outermost: eight values of K by eight columns, transposed on the way into LDS.
/// The eight lanes of a column group hold its eight chunks, so that no two of them meet in a bank; the eight groups of a wave
/// cover 64 consecutive columns of memory, 128 bytes.
struct ColumnTask {
    static constexpr int kValues = 8;
    static __device__ __forceinline__ int chunk() { return lane_id() % 8; }
    static __device__ __forceinline__ int group() { return lane_id() / 8; }

    /// `panel_group`: which eight rows of the panel this lane's columns become.
    static __device__ __forceinline__ void store(const u32x4 (&held)[kValues], uint8_t* panel, int panel_group) {
        u32x4 column[8];
        transpose_halves(held, column);
        const int base = Fp8Rows::offset(panel_group * 8, chunk());
#pragma unroll
        for (int c = 0; c < 8; ++c) write_chunk(panel, Fp8Rows::at(base, c, 0), column[c]);
    }
};

/// B, [n, k] with K innermost: rows `first` .. of it, of `count` in all. Rows beyond read as zero.
class InnermostB {
    BufferResource rows_;
    int offset_[RowTask::kRows];

public:
    __device__ __forceinline__ InnermostB(const uint16_t* matrix, int first, int count, int pitch) {
        const int rows = count - first < kHalfColumns ? count - first : kHalfColumns;
        const size_t begin = static_cast<size_t>(first) * static_cast<size_t>(pitch);
        rows_ = make_buffer(matrix + begin, rows * pitch * 2);
        RowTask::place(offset_, [&](int row) { return row < rows ? row * pitch * 2 : kOutside; });
    }
    __device__ __forceinline__ void load(int block, u32x4 (&held)[8]) const {
#pragma unroll
        for (int i = 0; i < 8; ++i) held[i] = buffer_load_16(rows_, offset_[i], block * kBlockK);
    }
    __device__ __forceinline__ void store(const u32x4 (&held)[8], uint8_t* panel) const { RowTask::store(held, panel); }
};

/// B, [k, n] with K outermost: 64 columns for each of two waves.
class OutermostB {
    const uint16_t* matrix_;  // first column of this wave, k = 0
    int pitch_, left_;

    static __device__ __forceinline__ int half() { return wave_id() & 1; }

public:
    /// Columns `first` .. of `count` in all, which are a multiple of 8.
    __device__ __forceinline__ OutermostB(const uint16_t* matrix, int first, int count, int pitch)
        : matrix_(uniform(matrix) + first + half() * 64), pitch_(pitch), left_(count - first - half() * 64) {}

    __device__ __forceinline__ void load(int block, u32x4 (&held)[8]) const {
        const size_t begin = static_cast<size_t>(block) * kHalfBlockK * static_cast<size_t>(pitch_);
        const int bytes = left_ > 0 ? ((kHalfBlockK - 1) * pitch_ + left_) * 2 : 0;
        const BufferResource buffer = make_buffer(matrix_ + begin, bytes);
        const int column = ColumnTask::group() * 8;
        const int offset = column < left_ ? (ColumnTask::chunk() * 8 * pitch_ + column) * 2 : kOutside;
#pragma unroll
        for (int i = 0; i < 8; ++i) held[i] = buffer_load_16(buffer, offset, i * pitch_ * 2);
    }
    __device__ __forceinline__ void store(const u32x4 (&held)[8], uint8_t* panel) const {
        ColumnTask::store(held, panel, half() * 8 + ColumnTask::group());
    }
};

/// A, rows of K innermost, at any places of one buffer.
class RowsA {
    BufferResource buffer_;
    int offset_[RowTask::kRows];

public:
    template <class RowOffset>
    __device__ __forceinline__ RowsA(BufferResource buffer, RowOffset row_offset) : buffer_(buffer) {
        RowTask::place(offset_, row_offset);
    }
    __device__ __forceinline__ void load(int block, u32x4 (&held)[8]) const {
#pragma unroll
        for (int i = 0; i < 8; ++i) held[i] = buffer_load_16(buffer_, offset_[i], block * kBlockK);
    }
};

/// Sums of one wave: 64 rows by 64 columns of the workgroup's tile.
template <class Half>
struct HalfTile {
    static constexpr int kTiles = 4;
    f32x4 sum[kTiles][kTiles];  // [rows][columns]
    int first_tile_m, first_n;

    __device__ __forceinline__ HalfTile() : sum{} {
        first_tile_m = wave_id() / 2 * kTiles;
        first_n = wave_id() % 2 * kTiles * 16;
    }

    /// Row of the workgroup's tile whose results `sum[tile]` this lane has.
    __device__ __forceinline__ int row(int tile) const { return column_row(first_tile_m + tile, lane_id() % 16); }
    /// First of this lane's 16 consecutive columns (rows of the panel).
    __device__ __forceinline__ int column() const { return first_n + lane_id() / 16 * 16; }

    __device__ __forceinline__ void add_block(const HalfLds& lds) {
        const int base_a = fp8_operand_base(row(0));
        const int base_b = fp8_operand_base(first_n + interleaved_row(0, lane_id() % 16));
        Fp8Operand a[kTiles];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) a[tile] = read_fp8_operand(lds.a.bytes, base_a, column_row(tile, 0));
        set_wave_priority<1>();
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
            const Fp8Operand b = read_fp8_operand(lds.b.bytes, base_b, interleaved_row(n, 0));
#pragma unroll
            for (int step = 0; step < Fp8Operand::kSteps; ++step)
#pragma unroll
                for (int m = 0; m < kTiles; ++m) sum[m][n] = Half::multiply(b.step[step], a[m].step[step], sum[m][n]);
        }
        set_wave_priority<0>();
    }

    /// Sums of K blocks [begin, end).
    template <class B>
    __device__ __forceinline__ void run(HalfLds& lds, const RowsA& a, const B& b, int begin, int end) {
        u32x4 held[8];
        const auto load = [&](int block) {
            if (fetches_b()) b.load(block, held);
            else a.load(block, held);
        };
        if (begin < end) load(begin);
        for (int block = begin; block < end; ++block) {
            if (fetches_b()) b.store(held, lds.b.bytes);
            else RowTask::store(held, lds.a.bytes);
            __syncthreads();
            if (block + 1 < end) load(block + 1);
            add_block(lds);
            __syncthreads();
        }
    }
};

/// Sixteen consecutive values of one row as halves, at byte `offset` of a buffer; the first `left` (a multiple of 8) exist.
template <class Half>
__device__ __forceinline__ void store_halves(BufferResource to, int offset, const f32x4 (&value)[4], int left) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const f32x4 x = value[2 * i], y = value[2 * i + 1];
        const u32x4 packed = {
            Half::pack(x[0], x[1]), Half::pack(x[2], x[3]), Half::pack(y[0], y[1]), Half::pack(y[2], y[3])};
        buffer_store_16(to, 8 * i < left && offset != kOutside ? offset + 16 * i : kOutside, packed);
    }
}
