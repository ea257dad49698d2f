// SPDX-License-Identifier: MIT
// The tensor memory accelerator (sm_90), one instruction per function: boxes of two, three and five dimensions by a tensor map,
// with and without a policy for L2, and plain bulk copies. One thread issues.
#pragma once

#include <cstdint>

#include "common/tensor_map.h"

// The tensor memory accelerator (sm_90): whole boxes of a matrix between global and shared memory, issued by one thread.
//
// A tensor map (common/tensor_map.h) holds the matrix and the box; an instruction adds the coordinates of the box's first
// element: x along rows (contiguous), y counts rows. Elements outside the matrix read as zero and are not written. Loads
// report their bytes, the whole box's, to an mbarrier; stores complete in groups, as cp.async does.

/// Bring a map into the cache before its first use.
__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

/// Load a box to `shared` of this block and count its bytes at `barrier`.
__device__ __forceinline__ void tma_load(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n" ::
            "r"(shared),
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

// TMA loads that tell L2 how long to keep what they read (sm_90): ptx/tma.h with a policy.

/// The policy for data that is read once: the first to go.
__device__ __forceinline__ uint64_t policy_evict_first() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}

/// tma_load with a policy.
__device__ __forceinline__ void tma_load(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
        : "memory");
}

/// tma_load_multicast with a policy.
__device__ __forceinline__ void tma_load_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5, %6;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(ranks), "l"(policy)
        : "memory");
}

// TMA loads of boxes with three dimensions (ptx/tma.h has those of matrices): one instruction for several panels of a tile.
//
// The map (encode_panel_map, common/tensor_map.h) holds sizes, pitches and the box; the coordinates are those of the box's first
// element, the contiguous dimension first.

/// Load a box to `shared` of this block and count its bytes at `barrier`; with a policy for L2 (ptx/tma.h).
__device__ __forceinline__ void tma_load_3d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "l"(policy)
        : "memory");
}

/// The same without one.
__device__ __forceinline__ void tma_load_3d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];\n" ::"r"(shared),
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

// TMA loads of boxes with five dimensions (ptx/tma.h has those of matrices): one instruction for a tile of one head.
//
// The map (common/tensor_map.h) holds sizes, pitches and the box; the coordinates are those of the box's first element,
// the contiguous dimension first. Elements outside the tensor read as zero and count as bytes all the same.

/// Load a box to `shared` of this block and count its bytes at `barrier`.
__device__ __forceinline__ void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
        : "memory");
}

/// The same with a policy for L2 (ptx/tma.h).
__device__ __forceinline__ void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "l"(policy)
        : "memory");
}

/// Load a box to the same place in every block of the cluster whose rank is a bit of `ranks`; each counts the bytes at its own
/// barrier.
__device__ __forceinline__ void tma_load_5d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4, uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "h"(ranks)
        : "memory");
}

/// Bring a box to L2: a hint, which nothing waits for.
__device__ __forceinline__ void tma_prefetch_5d(const TensorMap& map, int x0, int x1, int x2, int x3, int x4) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];\n" ::"l"(&map), "r"(x0),
                 "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                 : "memory");
}

// Plain copies by the tensor memory accelerator (cp.async.bulk, sm_90): contiguous bytes, no tensor map, one thread issues.
//
// Addresses and byte counts are multiples of 16. Loads report their bytes to an mbarrier that expects them; additions belong
// to the issuing thread's group of stores (ptx/tma.h).

/// Copy `bytes` from `global` to `shared` of this block and count them at `barrier`.
__device__ __forceinline__ void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

/// The same with a policy for L2 (ptx/tma.h).
__device__ __forceinline__ void bulk_load(
    uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;\n" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

/// Add `bytes` of fp32 numbers in shared memory to those at `global`, in L2: each addition is atomic, their order is not
/// defined.
__device__ __forceinline__ void bulk_reduce_add(float* global, uint32_t shared, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(global),
                 "r"(shared), "r"(bytes)
                 : "memory");
}

/// Wait until at most `kPending` groups of this thread's stores and additions are not yet done.
template <int kPending>
__device__ __forceinline__ void bulk_wait_done() {
    asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(kPending) : "memory");
}

/// Make what this thread sees of global memory, others' ordinary stores included, visible to asynchronous accesses that it
/// issues from now on.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;\n" ::: "memory"); }
