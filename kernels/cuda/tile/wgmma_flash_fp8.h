// SPDX-License-Identifier: MIT
// The device code of attention forward from e4m3 on wgmma.
//
// Roles in a block: kGroups warpgroups with 64 query rows each, then a warpgroup of which one thread drives TMA and, where values
// were not transposed before, three warps turn them over. They meet at mbarriers, a full and an empty one for each stage of the
// rings: queries, keys, values as they come (TMA to the transposers) and values transposed (to the consumers, of
// tile/wgmma_flash_fp8_consume.h). See flash_attention_fp8/wgmma_tma.cu for the algorithm, the instances and the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tma.h"
#include "ptx/tma_5d.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/wgmma_flash_fp8_consume.h"
#include "tile/wgmma_flash_fp8_shape.h"
#include "tile/wgmma_flash_fp8_transpose.h"

/// Fill the rings for all tiles of this block. One thread. Keys run one step ahead of values, as the consumers do.
template <class Shape>
__device__ __forceinline__ void produce_fp8_flash(
    const Fp8FlashMemory<Shape>& memory, const TensorMap& queries, const TensorMap& keys, const TensorMap& values,
    const Fp8FlashProblem& p) {
    uint32_t key_count = 0, value_count = 0, tile_count = 0;
    const auto announce = [&](const Fp8FlashTile& tile, uint32_t bytes) {
        const Fp8Place<Shape::kQueryStages> at(tile_count);
        mbarrier_wait(memory.query_empty(at.stage), at.parity ^ 1);
        memory.tile(tile_count) = tile;
        mbarrier_arrive_expect(memory.query_full(at.stage), bytes);
        ++tile_count;
        return at.stage;
    };
    for (Fp8FlashWalk<Shape> walk; walk.more(p); walk.next(p)) {
        Fp8FlashTile tile = walk.tile(p);
        walk.fetch(p);
        if (tile.steps == 0) {
            announce(tile, 0);
            continue;
        }
        const int key_head = Fp8FlashWalk<Shape>::quotient(tile.head, p.heads_per_key_head);
        const auto load_keys = [&](int step) {
            const Fp8Place<Shape::kStages> at(key_count++);
            Fp8StepScales scales;
            if constexpr (Shape::kBlockScales) {
                const int scale_at = p.key_grid.at(tile.batch, step * Shape::kKeys, key_head);
                scales.keys = p.key_scales[scale_at];
                scales.value_log = p.value_scales[scale_at];   // its logarithm once the wait is over
            }
            mbarrier_wait(memory.keys_empty(at.stage), at.parity ^ 1);
            if constexpr (Shape::kBlockScales) {
                scales.value_log = log2f(scales.value_log);
                scales.value_inverse = Exp2()(-scales.value_log);
                memory.step_scales(at.stage) = scales;
            }
            mbarrier_arrive_expect(memory.keys_full(at.stage), Shape::kKeyBytes);
            tma_load_5d(
                memory.keys(at.stage), keys, memory.keys_full(at.stage), 0, step * Shape::kKeys, 0, key_head, tile.batch);
        };
        load_keys(tile.steps - 1);
        if constexpr (!Shape::kBlockScales) {
            const int scale_at = p.key_grid.at(tile.batch, 0, key_head);
            tile.key_scale = p.key_scales[scale_at];
            tile.value_scale = p.value_scales[scale_at];
        }
        const int query = announce(tile, Shape::kQueryBytes);
        tma_load_5d(
            memory.query(query), queries, memory.query_full(query), 0, tile.first_query, 0, tile.head, tile.batch);
        for (int step = tile.steps - 1; step >= 0; --step) {
            if (step > 0) load_keys(step - 1);
            if constexpr (Shape::kFirstPass) {
                const Fp8Place<Shape::kStages> at(value_count++);
                mbarrier_wait(memory.values_empty(at.stage), at.parity ^ 1);
                mbarrier_arrive_expect(memory.values_full(at.stage), Shape::kValueBytes);
#pragma unroll
                for (int piece = 0; piece < Shape::kKeys / Shape::kValueRow; ++piece) {
                    tma_load(
                        memory.values(at.stage) + piece * Shape::kValuePitch, values, memory.values_full(at.stage),
                        step * Shape::kKeys + piece * Shape::kValueRow,
                        (tile.batch * p.key_heads + key_head) * Shape::kHeadDim);
                }
            } else {
                const Fp8Place<Shape::kStages> at(value_count++);
                mbarrier_wait(memory.raw_empty(at.stage), at.parity ^ 1);
                mbarrier_arrive_expect(memory.raw_full(at.stage), Shape::kKeyBytes);
                tma_load_5d(
                    memory.raw(at.stage), values, memory.raw_full(at.stage), 0, step * Shape::kKeys, 0, key_head, tile.batch);
            }
        }
    }
    announce({0, 0, 0, -1, 1.0f, 1.0f}, 0);
    if constexpr (!Shape::kFirstPass) {
        const Fp8Place<Shape::kStages> at(value_count);
        mbarrier_wait(memory.raw_empty(at.stage), at.parity ^ 1);
        memory.ends(at.stage) = 1;
        mbarrier_arrive(memory.raw_full(at.stage));
    }
}

/// Transpose the values of all tiles of this block. `warp` counts the transposers.
template <class Shape>
__device__ __forceinline__ void transpose_fp8_flash(const Fp8FlashMemory<Shape>& memory, int warp, int lane) {
    for (uint32_t count = 0;; ++count) {
        const Fp8Place<Shape::kStages> at(count);   // in both rings of values
        mbarrier_wait(memory.raw_full(at.stage), at.parity);
        if (memory.ends(at.stage) != 0) break;
        mbarrier_wait(memory.values_empty(at.stage), at.parity ^ 1);
        transpose_values<Shape>(memory.raw(at.stage), memory.values(at.stage), warp, lane);
        fence_async_shared();   // what ordinary stores wrote, wgmma reads
        __syncwarp();
        if (lane == 0) {
            mbarrier_arrive(memory.raw_empty(at.stage));
            mbarrier_arrive(memory.values_full(at.stage));
        }
    }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash_fp8(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,
    const __grid_constant__ TensorMap values, const __grid_constant__ Fp8FlashProblem p) {
    const Fp8FlashMemory<Shape> memory = {swizzled_shared(), shared_address(swizzled_shared())};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kConsumerWarps = Shape::kConsumerThreads / 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Shape::kQueryStages; ++stage) {
            mbarrier_init(memory.query_full(stage), 1);
            mbarrier_init(memory.query_empty(stage), kConsumerWarps);
        }
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_init(memory.keys_full(stage), 1);
            mbarrier_init(memory.keys_empty(stage), kConsumerWarps);
            if constexpr (!Shape::kFirstPass) {
                mbarrier_init(memory.raw_full(stage), 1);
                mbarrier_init(memory.raw_empty(stage), Shape::kTransposers);
                memory.ends(stage) = 0;
            }
            mbarrier_init(memory.values_full(stage), Shape::kFirstPass ? 1 : Shape::kTransposers);
            mbarrier_init(memory.values_empty(stage), kConsumerWarps);
        }
        mbarrier_fence_init();
        tma_prefetch_map(queries);
        tma_prefetch_map(keys);
        tma_prefetch_map(values);
    }
    __syncthreads();
    grid_dependency_wait();
    grid_dependency_release();

    if (warp < kConsumerWarps) {
        if constexpr (Shape::kMovesRegisters) take_registers<Shape::kConsumerRegisters>();
        consume_fp8_flash<Shape>(memory, p, warp / 4, warp % 4, lane);
    } else {
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (warp > kConsumerWarps) {
            if constexpr (!Shape::kFirstPass) transpose_fp8_flash<Shape>(memory, warp - kConsumerWarps - 1, lane);
        } else if (lane == 0) {
            produce_fp8_flash<Shape>(memory, queries, keys, values, p);
        }
        __syncwarp();   // the warp ends as a whole
    }
}
