// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: one warpgroup for scores, two for the halves of the output's columns, and
// a warp that copies.
#pragma once

#include "ptx/grid_dependency.h"
#include "ptx/shared_address.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/wgmma_coded_produce.h"
#include "tile/wgmma_coded_wide_scores.h"
#include "tile/wgmma_coded_wide_values.h"

/// One group of blocks for each chunk of the line of pages, a block of it for each Shape::kRows rows.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) coded_wide(const __grid_constant__ typename Shape::Arguments a) {
    uint8_t* const start = swizzled_shared();
    const WideMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
    constexpr int kWarps = Shape::kWorkers / 32;   // 4 of scores, 4 of each half of the values; the next one copies
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Shape::kSlots; ++slot) {
            mbarrier_init(memory.full(slot), 1);
            mbarrier_init(memory.empty(slot), kWarps);
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_init(memory.ready(buffer), 4);
            mbarrier_init(memory.done(buffer), kWarps - 4);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp > kWarps) fetch_inputs(a, CodedRow::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    grid_dependency_wait();
    grid_dependency_release();
    const int block = static_cast<int>(blockIdx.x), chunk = block / a.row_tiles, row_tile = block % a.row_tiles;
    if (warp < 4) {
        CodedScorer<Shape>{{memory, a, warp, recomputed_thread() % 32, row_tile}}.work();
    } else if (warp < kWarps) {
        take_registers<Shape::kValueRegisters>();
        CodedValuer<Shape>{{memory, a, warp % 4, recomputed_thread() % 32, row_tile}}.work(warp / 4 - 1);
    } else {
        give_registers<Shape::kProducerRegisters>();
        if (warp == kWarps) {
            const int lane = recomputed_thread() % 32;
            CodedProducer<Shape, WideMemory<Shape>>{memory, a, lane}.copy_all(DecodeWalk(a.schedule, chunk, lane));
        }
    }
}
