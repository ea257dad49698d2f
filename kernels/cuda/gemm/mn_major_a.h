// SPDX-License-Identifier: MIT
// MN-major rows (A) of the Hopper product: they stay so in shared memory and reach wgmma in registers.
//
// wgmma reads 8-bit operands from shared memory with K contiguous only, but A may come from registers, and there ldmatrix and
// byte permutes can put it: as in gemm/mma_sync_operands.h, ldmatrix.trans brings byte pairs of two k, and two permutes make
// registers of four k. What that leaves out of order costs nothing:
//   rows   fragment row g of a warp's 16 is row 2g, and g + 8 is 2g + 1: scales are read and sums stored accordingly. Where
//          rows are weights that even helps: a lane's two rows are neighbours in a row of c
//   K      slot 4t + j of 16 is k = 2t + j % 2 + 8 * (j / 2): the columns must lie in the same order, which the
//          transposition that makes them K-major sees to (gemm/transpose_bytes.h)
#pragma once

#include <cstdint>

#include "common/tensor_map.h"
#include "ptx/convert.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace gemm {

/// `Base` (a WgmmaShape) with MN-major rows, [k][rows]. The number of rows is a multiple of 16.
///
/// A stage holds boxes of 128 k by 128 rows: 128 bytes per k, in TMA's 128-byte swizzle.
template <class Base>
struct MnMajorRows : Base {
    static constexpr bool kMnMajorRows = true;
    static constexpr bool kPipelined = false;
    static_assert(Base::kM % 128 == 0, "boxes are 128 rows wide");
};

constexpr int kMnMajorBoxRows = 128;

/// Host side: the map of the rows, whose boxes are a block's share of 128 k.
template <class Shape>
int encode_mn_major_rows(TensorMap* map, const Matrix& rows) {
    return encode_tensor_map(map, {rows.start, rows.columns, rows.rows, 1}, Shape::kK / Shape::kPair, kMnMajorBoxRows);
}

/// Load the K block from k on of the tile's rows. Paired blocks load half of the k each for both.
template <class Shape>
__device__ __forceinline__ void load_mn_major_rows(
    uint32_t tile, const TensorMap& rows, uint32_t full, int k, int row, int rank) {
#pragma unroll
    for (int box = 0; box < Shape::kM / kMnMajorBoxRows; ++box) {
        const uint32_t to = tile + box * (Shape::kK * kMnMajorBoxRows);
        const int x = row + box * kMnMajorBoxRows;
        if constexpr (Shape::kPair == 2) {
            const int half = rank * (Shape::kK / 2);
            tma_load_multicast(to + half * kMnMajorBoxRows, rows, full, x, k + half, 3);
        } else {
            tma_load(to, rows, full, x, k);
        }
    }
}

/// One warp's 16 rows of a slice of 64 by kCount x 32 k: byte pairs as ldmatrix brings them, or, permuted, wgmma's A.
template <int kCount>
struct MnMajorFragments {
    uint32_t k32[kCount][4];

    /// From the k at `from` on, an address of mn_major_rows.
    __device__ __forceinline__ void fetch(uint32_t from) {
#pragma unroll
        for (int step = 0; step < kCount; ++step) ldmatrix_x4_trans(k32[step], from + step * 32 * kMnMajorBoxRows);
    }

    /// Fragments kAt and following out of those fetched.
    template <int kAt, int kFetched>
    __device__ __forceinline__ void permute(const MnMajorFragments<kFetched>& fetched) {
#pragma unroll
        for (int step = 0; step < kFetched; ++step) {
            const uint32_t (&pairs)[4] = fetched.k32[step];
            k32[kAt + step][0] = permute_bytes<0x6420>(pairs[0], pairs[1]);
            k32[kAt + step][1] = permute_bytes<0x7531>(pairs[0], pairs[1]);
            k32[kAt + step][2] = permute_bytes<0x6420>(pairs[2], pairs[3]);
            k32[kAt + step][3] = permute_bytes<0x7531>(pairs[2], pairs[3]);
        }
    }

    __device__ __forceinline__ void load(uint32_t from) {
        MnMajorFragments fetched;
        fetched.fetch(from);
        permute<0>(fetched);
    }
};

/// Where this lane's ldmatrix addresses of a warp's rows start.
__device__ __forceinline__ uint32_t mn_major_rows(uint32_t tile, int slice, int warp, int lane) {
    constexpr int kBoxBytes = 128 * kMnMajorBoxRows;
    const int chunk = slice % 2 * 4 + warp;  // of 16 rows, in the box
    return tile + slice / 2 * kBoxBytes + lane * kMnMajorBoxRows + ((chunk ^ lane % 8) << 4);
}

/// All K blocks of a WgmmaConsumer, each multiplied and promoted before the next: its one_by_one for one slice, with the rows of
/// the next products fetched beside these, as far as registers go.
template <class Shape, class Consumer, class Sums>
__device__ __forceinline__ void sum_mn_major(Consumer& consumer, Sums& sums, int blocks, int runs) {
    static_assert(Shape::kSlices == 1, "two slices leave no registers for it");
    if (blocks == 0) return;
    constexpr int kSteps = Shape::kK / 32, kAhead = Shape::kN < 192 ? kSteps : 2;
    const auto& who = consumer.who;
    const auto& memory = consumer.memory;
    auto& filled = consumer.filled;
    const uint32_t mine = mn_major_rows(0, who.group, who.warp, who.lane);
    MnMajorFragments<kSteps> rows;
    mbarrier_wait(memory.full(filled.stage), filled.parity);
    rows.load(memory.tile(filled.stage) + mine);
    for (int block = 0; block < blocks; ++block) {
        const int stage = filled.stage;
        const uint64_t b = wgmma_operand(memory.tile(stage) + Shape::kRowBytes);
        filled.advance();
        typename Consumer::Scales scales;
        typename Consumer::Partial partial;
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            Wgmma<Shape::kN>::product(partial, rows.k32[step], b + 2 * step, step > 0);
        }
        wgmma_commit();
        const bool more = block + 1 < blocks;
        const uint32_t next = memory.tile(filled.stage) + mine;
        MnMajorFragments<kAhead> fetched;
        if (more) {
            mbarrier_wait(memory.full(filled.stage), filled.parity);
            fetched.fetch(next);
        }
        wgmma_wait<0>();
        wgmma_results(partial);
        scales.load(memory.scales(stage), who);  // not earlier: registers
        if (more) {
            if constexpr (kAhead < kSteps) {
                MnMajorFragments<kSteps - kAhead> rest;
                rest.fetch(next + kAhead * 32 * kMnMajorBoxRows);
                rows.template permute<kAhead>(rest);
            }
            rows.template permute<0>(fetched);
        }
        consumer.free_stage();
        scales.promote(sums.total[0], partial, 0, runs);
    }
}

}  // namespace gemm
