// SPDX-License-Identifier: MIT
// The device code of MLA decode over e4m3 codes with 16-bit tiles: a warpgroup that converts, two that multiply.
#pragma once

#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/wgmma_latent_codes_produce.h"
#include "tile/wgmma_latent_consume.h"

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) latent_codes(const __grid_constant__ typename Shape::Arguments a) {
    uint8_t* const start = swizzled_shared();
    const LatentMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kWarps = Shape::kConsumerThreads / 32;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            for (int panel = 0; panel < Shape::kPanels; ++panel) {
                mbarrier_init(memory.full(stage, panel), Shape::kConverterWarps);
            }
            for (int part = 0; part < Shape::kParts; ++part) mbarrier_init(memory.empty(stage, part), 4);
        }
        mbarrier_init(memory.query_full(0), kWarps);
        mbarrier_init(memory.query_empty(0), kWarps);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp > kWarps) fetch_inputs(a, Shape::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    grid_dependency_wait();
    grid_dependency_release();

    if (warp < 4) {
        take_registers<Shape::kConsumerRegisters>();
        LatentConsumer<Shape, 0>{memory, a, warp, lane}.consume();
    } else if (warp < kWarps) {
        take_registers<Shape::kConsumerRegisters>();
        LatentConsumer<Shape, 1>{memory, a, warp - 4, lane}.consume();
    } else {
        give_registers<Shape::kProducerRegisters>();
        PageConverter<Shape>{memory, a}.convert();
    }
}
