// SPDX-License-Identifier: MIT
// TMA loads that tell L2 how long to keep what they read (sm_90): ptx/tma.h with a policy.
#pragma once

#include <cstdint>

#include "ptx/tma.h"

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
