// SPDX-License-Identifier: MIT
// The tensor memory accelerator (sm_90): whole boxes of a matrix between global and shared memory, issued by one thread.
//
// A tensor map (tile/tensor_map.h) holds the matrix and the box; an instruction adds the coordinates of the box's first
// element: x along rows (contiguous), y counts rows. Elements outside the matrix read as zero and are not written. Loads
// report their bytes, the whole box's, to an mbarrier; stores complete in groups, as cp.async does.
#pragma once

#include <cstdint>

#include "tile/tensor_map.h"

/// Bring a map into the cache before its first use.
__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

/// Load a box to `shared` of this block and count its bytes at `barrier`.
__device__ __forceinline__ void tma_load(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n" ::"r"(
            shared),
        "l"(&map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

/// Load a box to the same place in every block of the cluster whose rank is a bit of `ranks`; each counts the bytes at its
/// own barrier.
__device__ __forceinline__ void tma_load_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(ranks)
        : "memory");
}

/// Make this thread's view of shared memory, ordinary stores included, visible to asynchronous accesses issued after it.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

/// Store a box from shared memory.
__device__ __forceinline__ void tma_store(const TensorMap& map, uint32_t shared, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n" ::"l"(&map),
                 "r"(shared), "r"(x), "r"(y)
                 : "memory");
}

/// Close the group of this thread's stores since the last commit.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }

/// Wait until at most `kPending` groups of this thread's stores still read shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory");
}
