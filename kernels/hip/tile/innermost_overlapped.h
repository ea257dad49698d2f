// SPDX-License-Identifier: MIT
// Products on CDNA3 of operands with K innermost, block-scaled FP8 or bf16: one K block (128 bytes) in LDS, filled while it is
// read.
//
// A wave takes its operand of A into registers for the whole K block, and that of B two columns of tiles at a time: a turn. It
// reads, waits for the others, multiplies, waits again. Tiles of eight waves have two groups of them, one wave of each on
// every SIMD, and one group is a barrier behind: while one reads, stores and requests, the other one multiplies.
//
// LDS has three parts: A's rows, and the rows of B that are the first and the second half of every wave's columns. Each is free
// as soon as both groups have read it, two barriers later, and takes the next block's values long before they are read.
// Workgroups stay and go from tile to tile: the next one's first block comes in while this one is multiplied.
#pragma once

#include "tile/buffered_scales.h"
#include "tile/half.h"

/// This thread's share of the K block that is on its way: chunks of 16 bytes, eight lanes to a row.
template <class Shape>
class InnermostParts {
    static constexpr int kChunksPerRow = kBlockK / kChunk;
    static constexpr int kRowsPerPass = Shape::kThreads / kChunksPerRow;
    // Rows of B that belong to the second half of the columns of tiles (interleaved_row).
    static constexpr int kSecondHalf = Shape::kTilesN == 4 ? 8 : 64;

    static constexpr int kPassesA = Shape::kM / kRowsPerPass, kPassesB = Shape::kN / 2 / kRowsPerPass;

    u32x4 a_[kPassesA], b_[2][kPassesB];
    BufferResource rows_a_, rows_b_;
    const int k_;
    int load_a_, load_b_;    // where this thread's first chunks come from
    int store_a_, store_b_;  // where they go

    static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / kChunksPerRow; }
    static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x) % kChunksPerRow; }
    /// A row of B that is of the first half.
    static __device__ __forceinline__ int row_b() {
        if constexpr (kRowsPerPass == kSecondHalf) return row();
        return row() / kSecondHalf * 2 * kSecondHalf + row() % kSecondHalf;
    }
    static __device__ __forceinline__ int first(int half, int pass) {
        return half * kSecondHalf + pass * 2 * kRowsPerPass;
    }

    static __device__ __forceinline__ BufferResource
    rows_of(const uint8_t* matrix, int first, int count, int most, int k, bool there) {
        const int bytes = there ? rows_there(first, count, most) * k : 0;
        return make_buffer(matrix + static_cast<size_t>(first) * static_cast<size_t>(k), bytes);
    }

public:
    __device__ __forceinline__ explicit InnermostParts(const BlockScaledGemm& problem) : k_(problem.k) {
        load_a_ = row() * k_ + chunk() * kChunk;
        load_b_ = row_b() * k_ + chunk() * kChunk;
        store_a_ = Fp8Rows::offset(row(), chunk());
        store_b_ = Fp8Rows::offset(row_b(), chunk());
    }

    /// From now on load rows of this tile; zeros if it is beyond the last one.
    __device__ __forceinline__ void turn_to(const BlockScaledGemm& problem, const GemmPart& to, bool there) {
        rows_a_ = rows_of(problem.a, to.first_row, problem.m, Shape::kM, k_, there);
        rows_b_ = rows_of(problem.b, to.first_column, problem.n, Shape::kN, k_, there);
    }

    /// All of K block `block`, but for the second half of B into LDS.
    __device__ __forceinline__ void begin(int block, BlockScaledLds<Shape>& lds) {
        load_a(block), load_b(0, block), load_b(1, block);
        store_a(lds), store_b(0, lds);
    }

    /// What goes on beside turn `turn` of the loads from LDS: what has been read by all makes way for the next block, `ahead`.
    /// Few registers are on their way at a time: a part is requested where another one has just been put into LDS.
    __device__ __forceinline__ void refill(int turn, int ahead, BlockScaledLds<Shape>& lds) {
        constexpr int kTurns = Shape::kTilesN / 2;
        if (turn == kTurns / 2 - 1) store_b(1, lds), load_a(ahead);  // this is still of the block that is multiplied
        if (turn == kTurns - 2) {
            if (kTurns > 2) store_a(lds);
            load_b(0, ahead);
        }
        if (turn < kTurns - 1) return;
        if (kTurns == 2) store_a(lds);
        store_b(0, lds), load_b(1, ahead);
    }

private:
    __device__ __forceinline__ void load_a(int block) {
#pragma unroll
        for (int pass = 0; pass < kPassesA; ++pass)
            a_[pass] = buffer_load_16(rows_a_, computed_here(load_a_) + pass * kRowsPerPass * k_, block * kBlockK);
    }
    __device__ __forceinline__ void load_b(int half, int block) {
#pragma unroll
        for (int pass = 0; pass < kPassesB; ++pass)
            b_[half][pass] = buffer_load_16(rows_b_, computed_here(load_b_) + first(half, pass) * k_, block * kBlockK);
    }
    __device__ __forceinline__ void store_a(BlockScaledLds<Shape>& lds) const {
#pragma unroll
        for (int pass = 0; pass < kPassesA; ++pass)
            write_chunk(lds.a.bytes, Fp8Rows::at(computed_here(store_a_), pass * kRowsPerPass, 0), a_[pass]);
    }
    __device__ __forceinline__ void store_b(int half, BlockScaledLds<Shape>& lds) const {
#pragma unroll
        for (int pass = 0; pass < kPassesB; ++pass)
            write_chunk(lds.b.bytes, Fp8Rows::at(computed_here(store_b_), first(half, pass), 0), b_[half][pass]);
    }
};

/// A wave's sums, and its products of one column of tiles, not yet scaled. Two tiles are multiplied in turns; the sums of the two
/// before are added meanwhile.
template <class Shape>
struct ScaledSums {
    WaveTile<Shape> wave;

    __device__ __forceinline__ explicit ScaledSums(const BlockScaledGemm& problem) : scales_(problem, wave) {}

    /// From now on load scales of the tile at `first_row`, `first_column`.
    __device__ __forceinline__ void turn_to(const BlockScaledGemm& problem, int first_row, int first_column) {
        scales_.turn_to(problem, first_row, first_column);
    }
    __device__ __forceinline__ void load(const BlockScaledGemm& problem, int block) { scales_.load(problem, block); }
    /// The block before is added: scale by what was loaded last.
    __device__ __forceinline__ void turn_scales() { scales_.products(scale_); }

    /// As if a K block of zeros had been multiplied but for its last column of tiles.
    __device__ __forceinline__ void clear() {
        wave.clear();
#pragma unroll
        for (int m = 0; m < Shape::kTilesM; ++m) product_[m] = f32x4{}, scale_[m] = 0;
    }

    /// Add what is left.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int i = 0; i < kAdds; ++i) add_behind(Shape::kTilesN, 0, i);
    }

    /// The products of column `n` and two rows of tiles. Those of the two before are added meanwhile, a few vector
    /// instructions behind a matrix instruction each: as many as go beside one.
    __device__ __forceinline__ void multiply(
        int n, int pair, const Fp8Operand& b, const Fp8Operand (&a)[Shape::kTilesM]) {
        constexpr int kFirst = 3;  // until then the last products are not there yet
#pragma unroll
        for (int i = 0; i < 2 * Fp8Operand::kSteps; ++i) {
            const int m = 2 * pair + i % 2, step = i / 2;
            product_[m] = mfma_16x16x32_fp8(b.step[step], a[m].step[step], step == 0 ? f32x4{} : product_[m]);
            schedule_barrier();
            if (i < kFirst || i >= kFirst + kAdds) continue;
            add_behind(n, pair, i - kFirst);
            schedule_barrier();
        }
    }

private:
    static constexpr int kAdds = 4;

    BufferedScales<Shape> scales_;
    f32x4 product_[Shape::kTilesM];
    float scale_[Shape::kTilesM];

    /// One of the four halves of the two tiles before column `n`, pair `pair`.
    __device__ __forceinline__ void add_behind(int n, int pair, int i) {
        const int last_pair = Shape::kTilesM / 2 - 1;
        const int column = pair > 0 ? n : (n + Shape::kTilesN - 1) % Shape::kTilesN;
        add(column, 2 * (pair > 0 ? pair - 1 : last_pair) + i / 2, i % 2);
    }

    /// A half of the sum of one tile: two of a lane's four rows.
    __device__ __forceinline__ void add(int n, int m, int half) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) wave.sum[m][n / 4][n % 4][i] += product_[m][i] * scale_[m];
    }
};

/// The same of bf16: matrix instructions add up. Rows of a and b are 2 k bytes, a K block is 64 values.
template <class Shape>
struct Bf16Sums {
    WaveTile<Shape> wave;

    __device__ __forceinline__ explicit Bf16Sums(const BlockScaledGemm&) {}
    __device__ __forceinline__ void turn_to(const BlockScaledGemm&, int, int) {}
    __device__ __forceinline__ void load(const BlockScaledGemm&, int) {}
    __device__ __forceinline__ void turn_scales() {}
    __device__ __forceinline__ void clear() { wave.clear(); }
    __device__ __forceinline__ void finish() {}

    __device__ __forceinline__ void multiply(
        int n, int pair, const Fp8Operand& b, const Fp8Operand (&a)[Shape::kTilesM]) {
#pragma unroll
        for (int i = 0; i < 2 * Fp8Operand::kSteps; ++i) {
            const int m = 2 * pair + i % 2, step = i / 2;
            f32x4& sum = wave.sum[m][n / 4][n % 4];
            sum = Bf16::multiply(b.step[step], a[m].step[step], sum);
        }
    }
};

/// The grid and `kSplit` as for block_scaled_gemm, but for fewer workgroups than tiles: each works on every gridDim.x-th tile
/// of `range`. Rows of c are aligned to 16 bytes.
template <class Shape, template <class> class Sums, bool kSplit>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    innermost_overlapped(BlockScaledGemm problem, int blocks_per_part, TileRange range) {
    constexpr int kTilesM = Shape::kTilesM, kTilesN = Shape::kTilesN, kTurns = kTilesN / 2, kPairs = kTilesM / 2;
    using Parts = InnermostParts<Shape>;
    __shared__ BlockScaledLds<Shape> lds;

    const int tiles = range.count * range.pieces * range.pieces;
    int index = static_cast<int>(blockIdx.x);
    GemmPart work = gemm_part<Shape>(problem, blocks_per_part, range, index);
    Parts parts(problem);
    Sums<Shape> sums(problem);
    parts.turn_to(problem, work, true);
    sums.turn_to(problem, work.first_row, work.first_column);
    sums.load(problem, work.begin);
    parts.begin(work.begin, lds);
    __syncthreads();

    Fp8Operand a[kTilesM], b[2];
    const auto read_a = [&](int m) {
        a[m] = read_fp8_operand(lds.a.bytes, computed_here(sums.wave.base_a), column_row(m, 0));
    };
    const auto read_b = [&](int n) {
        b[n % 2] =
            read_fp8_operand(lds.b.bytes, computed_here(sums.wave.base_b), n / 4 * 64 + interleaved_row(n % 4, 0));
    };
    constexpr int kGroup = 4 * kWaveSize;  // threads of a wave per SIMD
    const bool late = Shape::kThreads > kGroup && wave_id() * kWaveSize >= kGroup;
    if (late) __syncthreads();
    for (;;) {
        index += static_cast<int>(gridDim.x);
        const bool more = index < tiles;
        GemmPart next = work;
        if (more) next = gemm_part<Shape>(problem, blocks_per_part, range, index);
        sums.clear();
        int block = work.begin;
        do {  // no part is empty
            const bool last = block + 1 == work.end;
            if (last) parts.turn_to(problem, next, more), sums.turn_to(problem, next.first_row, next.first_column);
            const int ahead = last ? next.begin : block + 1;
#pragma unroll
            for (int turn = 0; turn < kTurns; ++turn) {
                read_b(2 * turn), read_b(2 * turn + 1);
                if (turn == 0) {
#pragma unroll
                    for (int m = 0; m < kTilesM; ++m) read_a(m);
                }
                parts.refill(turn, ahead, lds);
                if (turn == 1) sums.load(problem, ahead);
                schedule_barrier();
                __syncthreads();
                schedule_barrier();
                set_wave_priority<1>();
#pragma unroll
                for (int i = 0; i < kTilesM; ++i) {
                    sums.multiply(2 * turn + i / kPairs, i % kPairs, b[i / kPairs], a);
                    if (turn == 0 && i == 0) sums.turn_scales();
                }
                set_wave_priority<0>();
                schedule_barrier();
                __syncthreads();
                schedule_barrier();
            }
        } while (++block < work.end);
        sums.finish();
        store_aligned(ResultPlace<Shape, kSplit>(problem, work, sums.wave), sums.wave);
        if (!more) break;
        work = next;
    }
    if (Shape::kThreads > kGroup && !late) __syncthreads();
}
