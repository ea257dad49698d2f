// SPDX-License-Identifier: MIT
// The epilogue of the Hopper product: finished tiles go to memory by TMA or straight from registers. With parts of K
// gemm/cluster_reduce.h takes its place.
#pragma once

#include "common/swizzle.h"
#include "gemm/consumer.h"
#include "ptx/barrier.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"
#include "ptx/tma.h"

namespace gemm {

__device__ __forceinline__ void swap_words(uint32_t& a, uint32_t& b) {
    const uint32_t was = a;
    a = b;
    b = was;
}

/// One of the warpgroup's slices as bf16 through shared memory. The store goes on while the next tile is computed; the next
/// call for this slice waits for it before it reuses the memory, and so must the last one's caller before the block ends.
template <class Shape, int kSlice>
__device__ __forceinline__ void store_slice(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums, const TensorMap& output,
    const WorkTile& work) {
    static_assert(Shape::kTokensAreRows, "tokens as columns: store_tma_transposed");
    using Pattern = Swizzle<Shape::kBox / 8>;
    constexpr int kBoxBytes = 64 * Shape::kBox * 2;
    const bool issues = who.warp == 0 && who.lane == 0;
    const uint32_t region = memory.out() + (who.group * Shape::kSlices + kSlice) * Shape::kSliceBytes;
    if (issues) tma_store_wait_read<Shape::kSlices - 1>();
    named_barrier_sync(kGroupBarrier + who.group, 128);

    // Whose address this lane gives stmatrix. MN-major rows 2g and 2g + 1 lie in one lane: a matrix takes the even ones of the
    // first half and the odd ones of the second, the next matrix the others, or rows would share banks.
    constexpr bool kMixed = Shape::kMnMajorRows;
    const int row = who.warp * 16 + (kMixed ? who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4) : who.lane % 16);
    const int odd = who.lane / 16;  // and of which of the two 8-column chunks
#pragma unroll
    for (int pair = 0; pair < Shape::kN / 16; ++pair) {
        const int box = pair * 16 / Shape::kBox, chunk = pair * 2 % (Shape::kBox / 8);
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            packed[i] = Bf16::pack(sums.total[kSlice][pair * 8 + 2 * i], sums.total[kSlice][pair * 8 + 2 * i + 1]);
        }
        if (kMixed && who.lane >= 16) {
            swap_words(packed[0], packed[1]);
            swap_words(packed[2], packed[3]);
        }
        stmatrix_x4(region + box * kBoxBytes + Pattern::offset(row, chunk + odd), packed);
    }
    fence_async_shared();
    named_barrier_sync(kGroupBarrier + who.group, 128);
    if (issues) {
        const int y = work.row + who.group * Shape::kRowsPerConsumer + kSlice * 64;
        for (int box = 0; box < Shape::kN / Shape::kBox; ++box) {
            tma_store(output, region + box * kBoxBytes, work.column + box * Shape::kBox, y);
        }
        tma_store_commit();
    }
}

/// All slices of the warpgroup.
template <class Shape>
__device__ __forceinline__ void store_tma(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums, const TensorMap& output,
    const WorkTile& work) {
    store_slice<Shape, 0>(memory, who, sums, output, work);
    if constexpr (Shape::kSlices == 2) store_slice<Shape, 1>(memory, who, sums, output, work);
}

/// The same with MN-major weights as rows: a thread has two neighbouring weights of each of its tokens, which are
/// two neighbours in c. Boxes are kBox tokens high and the warpgroup's 64 weights wide.
template <class Shape>
__device__ __forceinline__ void store_tma_transposed(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums, const TensorMap& output,
    const WorkTile& work) {
    static_assert(Shape::kMnMajorRows && Shape::kSlices == 1, "whose lanes hold neighbouring rows");
    using Pattern = Swizzle<8>;
    const bool issues = who.warp == 0 && who.lane == 0;
    const uint32_t offset = Shape::kRingBytes + who.group * Shape::kSliceBytes;
    if (issues) tma_store_wait_read<0>();
    named_barrier_sync(kGroupBarrier + who.group, 128);

    const int chunk = who.warp * 2 + who.lane / 16, inside = who.lane / 4 % 4 * 4;
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; i += 4) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
            const int token = i * 2 + who.lane % 4 * 2 + next;
            *reinterpret_cast<uint32_t*>(memory.start + offset + Pattern::offset(token, chunk) + inside) =
                Bf16::pack(sums.total[0][i + next], sums.total[0][i + next + 2]);
        }
    }
    fence_async_shared();
    named_barrier_sync(kGroupBarrier + who.group, 128);
    if (issues) {
        for (int token = 0; token < Shape::kN; token += Shape::kBox) {
            tma_store(output, memory.address + offset + token * 128, work.row + who.group * 64, work.column + token);
        }
        tma_store_commit();
    }
}

/// For rows of c that wider stores cannot address (n % 8 != 0 for TMA): each thread stores its own elements, of the units of
/// 8 columns of a slice from `first_unit` up to `last_unit`.
template <class Shape>
__device__ __forceinline__ void store_elements(
    const Consumer& who, const WgmmaSums<Shape>& sums, const WgmmaProblem& p, const WorkTile& work, int first_unit = 0,
    int last_unit = Shape::kUnits) {
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; ++i) {
            const int unit = slice * (Shape::kN / 8) + i / 4;
            if (unit < first_unit || unit >= last_unit) continue;
            const int row = work.row + who.row<Shape>(slice) + i % 4 / 2 * row_step<Shape>;
            const int column = work.column + i / 4 * 8 + who.lane % 4 * 2 + i % 2;
            const int token = Shape::kTokensAreRows ? row : column, weight = Shape::kTokensAreRows ? column : row;
            if (token < p.m && weight < p.n) {
                const float value = sums.total[slice][i];
                p.c[static_cast<size_t>(token) * p.n + weight] = static_cast<uint16_t>(Bf16::pack(value, value));
            }
        }
    }
}

}  // namespace gemm
