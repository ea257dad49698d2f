// SPDX-License-Identifier: MIT
// TMA loads of boxes with three dimensions (ptx/tma.h has those of matrices): one instruction for several panels of a tile.
//
// The map (encode_panel_map, tile/tensor_map.h) holds sizes, pitches and the box; the coordinates are those of the box's first
// element, the contiguous dimension first.
#pragma once

#include <cstdint>

#include "tile/tensor_map.h"

/// Load a box to `shared` of this block and count its bytes at `barrier`; with a policy for L2 (ptx/tma_hint.h).
__device__ __forceinline__ void tma_load_3d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "l"(policy)
        : "memory");
}

/// The same without one.
__device__ __forceinline__ void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(
            shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2)
        : "memory");
}

/// Load a box to the same place in every block of the cluster whose rank is a bit of `ranks`; each counts the bytes at its own
/// barrier.
__device__ __forceinline__ void tma_load_3d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint16_t ranks, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "h"(ranks), "l"(policy)
        : "memory");
}

/// The same without a policy.
__device__ __forceinline__ void tma_load_3d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "h"(ranks)
        : "memory");
}
