// SPDX-License-Identifier: MIT
// The tiles of tile.h with operands that TMA brings: one thread issues, an mbarrier counts the bytes. The blocks of a cluster take
// different columns of a tile; the first of them loads A for all by multicast.
#pragma once

#include "common/launch_cluster.h"
#include "common/tensor_map.h"
#include "ptx/cluster.h"
#include "ptx/mbarrier.h"
#include "tile.h"

template <class Form, int kN, int kType>
__global__ void __launch_bounds__(128)
    tma_kernel(Tiles tiles, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    using Left = typename Operands<Form, kN>::Left;
    constexpr bool kAlone = Form::kBlocks == 1;
    constexpr uint32_t kAddress = 0x3ffff;  // above it a block's rank may stand, which is no part of a descriptor
    const uint32_t a_shared = shared_address(swizzled_shared()), b_shared = a_shared + Left::kBytes;
    const uint32_t barrier = a_shared + Operands<Form, kN>::kBytes;
    const int parts = tiles.n / kN, tile = static_cast<int>(blockIdx.x) / parts;
    const int edge = static_cast<int>(blockIdx.x) % parts * kN;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_fence_init();
    }
    const auto everyone = [] {  // has initialised its barrier, or read its operands
        if constexpr (kAlone) __syncthreads();
        else cluster_barrier();
    };
    everyone();
    Sums<Form, kN, kType> sums;
    for (int first = 0, phase = 0; first < tiles.bytes; first += Form::kStep, phase ^= 1) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(barrier, Operands<Form, kN>::kBytes);
            tma_load(b_shared, b_map, barrier, first, tile * tiles.n + edge);
            if constexpr (kAlone) {
                tma_load(a_shared, a_map, barrier, first, tile * 64);
            } else if (cluster_rank() == 0) {
                constexpr uint16_t kAll = (1 << Form::kBlocks) - 1;
                tma_load_multicast(a_shared, a_map, barrier, first, tile * 64, kAll);
            }
        }
        __syncwarp();
        mbarrier_wait(barrier, phase);
        sums.multiply([&](int s) {
            return Left::operand(a_shared & kAddress, s);
        }, b_shared & kAddress, tiles.slices(first, Form::kStep));
        everyone();
    }
    sums.store(tiles.c + static_cast<size_t>(tile) * 64 * tiles.n + edge, tiles.n);
}

/// Launches tma_kernel.
struct ByTma {
    template <class Form, int kN, int kType>
    static int launch(const Tiles& tiles, int repeat, void* queue) {
        static_assert(Form::kSwizzle == 128 && Form::kStep == 128, "a box is what one swizzle takes");
        TensorMap a_map, b_map;
        int error = encode_tensor_map(&a_map, {tiles.a, repeat * 64, tiles.bytes, 1}, 64, 128);
        if (error == 0) error = encode_tensor_map(&b_map, {tiles.b, repeat * tiles.n, tiles.bytes, 1}, kN, 128);
        if (error != 0) return error;
        return launch_cluster(
            tma_kernel<Form, kN, kType>, repeat * (tiles.n / kN), 128, Form::kBlocks, Operands<Form, kN>::kBytes + 8,
            false, queue, tiles, a_map, b_map);
    }
};
