// SPDX-License-Identifier: MIT
// Bulk asynchronous copies of contiguous bytes (cp.async.bulk, sm_90): one thread moves a whole run, without a tensor map.
#pragma once

#include <cstdint>

/// Copy `bytes` from global to this block's shared memory and count them at `barrier` (ptx/mbarrier.h). Both addresses and
/// the count are multiples of 16.
__device__ __forceinline__ void bulk_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}

/// Order this thread's ordinary accesses to shared memory before bulk copies that are issued behind the next barrier.
__device__ __forceinline__ void bulk_copy_fence() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }
