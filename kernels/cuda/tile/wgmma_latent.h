// SPDX-License-Identifier: MIT
// The device code of MLA decode on wgmma: a warp that loads, two warpgroups that multiply.
#pragma once

#include "ptx/cluster.h"
#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/prefetch.h"
#include "ptx/shared_address.h"
#include "ptx/tma.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/wgmma_latent_consume.h"
#include "tile/wgmma_latent_produce.h"
#include "tile/wgmma_latent_shape.h"

/// Ask queries, page numbers and lengths into L2, all blocks together. Part of a block's threads.
template <class Shape>
__device__ __forceinline__ void fetch_inputs(const LatentArguments& a, int thread, int threads) {
    const int stride = static_cast<int>(gridDim.x) * threads, first = static_cast<int>(blockIdx.x) * threads + thread;
    const auto fetch = [&](const void* array, long long bytes) {
        for (long long at = first * 128LL; at < bytes; at += stride * 128LL) {
            prefetch_l2(static_cast<const uint8_t*>(array) + at);
        }
    };
    const long long batch = a.schedule.batch;
    fetch(a.schedule.seqlens, batch * 4);
    fetch(a.block_table, batch * a.max_blocks * 4);
    fetch(a.q, batch * a.seqlen_q * a.heads * Shape::kWidth * 2);
}

#ifndef GUESSED_PAGES
#define GUESSED_PAGES 0  // a tunable of the kernel file, at most 32
#endif

/// Ask the first pages of a chunk into L2 while the previous kernel still runs. Lengths and page numbers may be old ones then, so
/// these are guesses: they stay inside the cache, and nothing else comes of them. One warp.
__device__ __forceinline__ void guess_first_pages(const LatentArguments& a, int group, int page_bytes, int lane) {
    const EarlyPageSchedule schedule = {
        a.schedule.seqlens, a.schedule.batch, a.schedule.longest, a.schedule.groups, a.schedule.slack};
    DecodeWalk walk(schedule, group, lane);
    DecodePiece piece;
    if (!walk.next(schedule, piece)) return;
    if (lane >= min(piece.steps.end - piece.steps.begin, GUESSED_PAGES)) return;
    const int* const table = a.block_table + static_cast<size_t>(piece.request) * a.max_blocks + piece.steps.begin;
    const int number = __ldcg(table + lane);
    if (number < 0 || number >= a.num_blocks) return;
    prefetch_l2_bulk(a.cache + static_cast<size_t>(number) * page_bytes, page_bytes);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) latent_wgmma(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap cache,
    const __grid_constant__ LatentArguments a) {
    uint8_t* const start = swizzled_shared();
    const LatentMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kWarps = Shape::kConsumerThreads / 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            for (int panel = 0; panel < Shape::kPanels; ++panel) mbarrier_init(memory.full(stage, panel), 1);
            for (int part = 0; part < Shape::kParts; ++part) mbarrier_init(memory.empty(stage, part), 4 * Shape::kPair);
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_init(memory.query_full(buffer), 1);
            mbarrier_init(memory.query_empty(buffer), kWarps);
        }
        mbarrier_fence_init();
        tma_prefetch_map(queries);
        tma_prefetch_map(cache);
    }
    if constexpr (Shape::kPair == 2) cluster_barrier();
    else __syncthreads();
    // Also before the wait: L2 is where the previous kernel's writes go, so nothing stale can stay there.
    if (warp > kWarps) fetch_inputs<Shape>(a, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    if constexpr (GUESSED_PAGES > 0) {
        const int block = static_cast<int>(blockIdx.x);
        if (warp == kWarps && block % a.row_tiles == 0) {
            guess_first_pages(a, block / a.row_tiles, Shape::kPageBytes, lane);
        }
    }
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
        if (warp == kWarps) {
            const int block = static_cast<int>(blockIdx.x), rank = Shape::kPair == 2 ? cluster_rank() : 0;
            produce_pages<Shape>(
                memory, queries, cache, a, block / a.row_tiles, block % a.row_tiles, rank, lane);
        }
    }
    if constexpr (Shape::kPair == 2) {
        __syncwarp();
        cluster_barrier();  // until here the other block loads into this one's memory and arrives there
    }
}
