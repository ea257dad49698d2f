// SPDX-License-Identifier: MIT
// Plain copies by the tensor memory accelerator (cp.async.bulk, sm_90): contiguous bytes, no tensor map, one thread issues.
//
// Addresses and byte counts are multiples of 16. Loads report their bytes to an mbarrier that expects them; additions belong
// to the issuing thread's group of stores (ptx/tma.h).
#pragma once

#include <cstdint>

/// Copy `bytes` from `global` to `shared` of this block and count them at `barrier`.
__device__ __forceinline__ void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

/// The same with a policy for L2 (ptx/tma_hint.h).
__device__ __forceinline__ void bulk_load(
    uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;\n" ::"r"(
            shared),
        "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

/// Add `bytes` of fp32 numbers in shared memory to those at `global`, in L2: each addition is atomic, their order is not
/// defined.
__device__ __forceinline__ void bulk_reduce_add(float* global, uint32_t shared, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(global), "r"(shared),
                 "r"(bytes)
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
