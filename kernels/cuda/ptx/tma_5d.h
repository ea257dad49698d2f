// SPDX-License-Identifier: MIT
// TMA loads of boxes with five dimensions (ptx/tma.h has those of matrices): one instruction for a tile of one head.
//
// The map (tile/head_tensor_map.h) holds sizes, pitches and the box; the coordinates are those of the box's first element,
// the contiguous dimension first. Elements outside the tensor read as zero and count as bytes all the same.
#pragma once

#include <cstdint>

#include "tile/tensor_map.h"

/// Load a box to `shared` of this block and count its bytes at `barrier`.
__device__ __forceinline__ void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
        : "memory");
}

/// The same with a policy for L2 (ptx/tma_hint.h).
__device__ __forceinline__ void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "l"(policy)
        : "memory");
}

/// Bring a box to L2: a hint, which nothing waits for.
__device__ __forceinline__ void tma_prefetch_5d(const TensorMap& map, int x0, int x1, int x2, int x3, int x4) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];\n" ::"l"(&map), "r"(x0), "r"(x1),
                 "r"(x2), "r"(x3), "r"(x4)
                 : "memory");
}
