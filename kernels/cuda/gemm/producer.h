// SPDX-License-Identifier: MIT
// The two warps that fill the ring: one thread drives TMA, one warp copies the scales.
//
// Scales come by cp.async rather than TMA, since a TMA row pitch is a multiple of 16 bytes and m is any number.
#pragma once

#include "common/ring.h"
#include "gemm/mn_major_a.h"
#include "gemm/scheduler.h"
#include "gemm/shape.h"
#include "ptx/cp_async.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"

namespace gemm {

/// Have the first weights of this block brought into L2. All consumer threads; before grid_dependency_wait, too, since L2 is where the
/// previous kernel's writes go, so that nothing stale can stay there.
///
/// By ordinary prefetches rather than TMA's: a multiprocessor has one TMA, and the previous kernel may still need it.
template <class Shape>
__device__ __forceinline__ void fetch_weights(const WgmmaProblem& p, int thread) {
    const WorkTile work = TileScheduler<Shape>(p).work(p);
    const int first = Shape::kTokensAreRows ? work.column : work.row;
    const int rows =
        max(0, min(Shape::kTokensAreRows ? Shape::kN : Shape::kM, p.n - first));  // of a pair, one may have none
    const int blocks = min(work.blocks, p.fetched_blocks);
    const size_t pitch = static_cast<size_t>(p.blocks) * Shape::kK;
    const uint8_t* const start = p.weights + first * pitch + work.first_block * Shape::kK;
    for (int row = thread; row < rows; row += Shape::kConsumerThreads) {
        for (int block = 0; block < blocks; ++block) prefetch_l2(start + row * pitch + block * Shape::kK);
    }
}

/// The tensor maps of both operands. Those of the tails have boxes that end with the matrix: rows outside it take TMA longer than
/// rows inside.
struct OperandMaps {
    const TensorMap &rows, &row_tail, &columns, &column_tail;
};

/// By which maps a tile's K blocks come, and how many bytes each brings. No pointers: the thread has few registers.
template <class Shape>
struct TileBoxes {
    bool short_rows, short_columns;
    bool outside;  // the second block of a pair may have no columns
    int bytes;

    __device__ __forceinline__ TileBoxes(const WgmmaProblem& p, const WorkTile& work) {
        const int last_row = Shape::kTokensAreRows ? p.m : p.n, last_column = Shape::kTokensAreRows ? p.n : p.m;
        short_rows = p.tail_rows > 0 && work.row + Shape::kM > last_row;
        short_columns = p.tail_columns > 0 && work.column + Shape::kN > last_column;
        outside = Shape::kPair == 2 && work.column >= last_column;
        const int box_columns = outside ? 0 : short_columns ? p.tail_columns : p.box_columns;
        bytes = ((short_rows ? p.tail_rows : p.box_rows) + box_columns) * Shape::kK;
    }
};

/// Fill the ring with all K blocks of all tiles. One thread. Waits for the previous kernel, having found out what to load first.
template <class Shape>
__device__ __forceinline__ void produce_tiles(
    const WgmmaMemory<Shape>& memory, const OperandMaps& maps, const WgmmaProblem& p) {
    RingPosition<Shape::kStages> at;
    TileScheduler<Shape> scheduler(p);
    WorkTile work = scheduler.work(p);
    grid_dependency_wait();
    while (true) {
        const TileBoxes<Shape> boxes(p, work);
        for (int block = 0; block < work.blocks; ++block, at.advance()) {
            mbarrier_wait(memory.empty(at.stage), at.parity ^ 1);
            const uint32_t full = memory.full(at.stage), tile = memory.tile(at.stage);
            const int x = (work.first_block + block) * Shape::kK;
            mbarrier_arrive_expect(full, boxes.bytes);
            if constexpr (Shape::kMnMajorRows) {
                load_mn_major_rows<Shape>(tile, maps.rows, full, x, work.row, scheduler.rank);
            } else if constexpr (Shape::kPair == 2) {
                const int half = scheduler.rank * (Shape::kM / 2);
                tma_load_multicast(tile + half * Shape::kK, maps.rows, full, x, work.row + half, 3);
            } else if (boxes.short_rows) {
                tma_load(tile, maps.row_tail, full, x, work.row);
            } else {
                tma_load(tile, maps.rows, full, x, work.row);
            }
            if (boxes.outside) continue;
            if (boxes.short_columns) tma_load(tile + Shape::kRowBytes, maps.column_tail, full, x, work.column);
            else tma_load(tile + Shape::kRowBytes, maps.columns, full, x, work.column);
        }
        scheduler.next();
        if (!scheduler.more()) break;
        work = scheduler.work(p);
    }
    grid_dependency_release();  // not before: what the next kernel fetches would compete with these loads
    if constexpr (Shape::kPair == 2) {
        // The block must not end before the other one's consumers have arrived here for the last time.
        for (int left = Shape::kStages; left > 0; --left, at.advance()) {
            mbarrier_wait(memory.empty(at.stage), at.parity ^ 1);
        }
    }
}

/// Fill the ring's scales: one per token, then those of the first and the second group of 128 weights. One warp, which waits for
/// the previous kernel.
template <class Shape>
__device__ __forceinline__ void produce_scales(const WgmmaMemory<Shape>& memory, const WgmmaProblem& p, int lane) {
    RingPosition<Shape::kStages> at;
    bool first = true;
    for (TileScheduler<Shape> scheduler(p); scheduler.more(); scheduler.next()) {
        const WorkTile work = scheduler.work(p);
        const int token = (Shape::kTokensAreRows ? work.row : work.column) + lane;
        const int group = (Shape::kTokensAreRows ? work.column : work.row) / 128 + lane;
        const int last_group = (p.n - 1) / 128;
        const float* source = p.a_scale + static_cast<size_t>(work.first_block) * p.m + token;
        const float* group_source = p.b_scale + min(group, last_group) * p.b_scale_row + work.first_block * p.b_scale_k;
        if (first) grid_dependency_wait();
        first = false;
        for (int block = 0; block < work.blocks; ++block, at.advance()) {
            mbarrier_wait(memory.empty(at.stage), at.parity ^ 1);
            const uint32_t to = shared_address(memory.scales(at.stage)) + lane * 4;
#pragma unroll
            for (int i = 0; i < Shape::kTokens; i += 32) {
                if (Shape::kTokens % 32 == 0 || i + lane < Shape::kTokens) {
                    cp_async_4(to + i * 4, source + i, token + i < p.m);
                }
            }
            if (lane < 2) cp_async_4(to + Shape::kTokens * 4, group_source, true);
            mbarrier_arrive_after_copies(memory.full(at.stage));
            source += p.m;
            group_source += p.b_scale_k;
        }
    }
    cp_async_commit();
    cp_async_wait<0>();
}

}  // namespace gemm
