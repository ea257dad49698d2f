// SPDX-License-Identifier: MIT
// Plain copies by the tensor memory accelerator (cp.async.bulk, sm_90): contiguous bytes, no tensor map, one thread issues.
#pragma once

#include <cstdint>

/// Copy `bytes` from global memory to `shared` of this block and count them at `barrier`; addresses and `bytes` are
/// multiples of 16.
__device__ __forceinline__ void bulk_load(uint32_t shared, const void* global, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}
