// SPDX-License-Identifier: MIT
// TMA loads that a whole warp calls and one of its lanes issues (sm_90): ptx/tma_hint.h without a branch around them.
//
// All lanes call with the same operands (warp_uniform of ptx/warp_uniform.h shows the compiler that). Where one lane branches off
// instead, the machine code looks for the lanes that have each load's operands, one load after the other: about 200 cycles each.
#pragma once

#include <cstdint>

#include "ptx/tma_hint.h"

/// The policy of loads without one.
__device__ __forceinline__ uint64_t policy_evict_normal() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}

/// tma_load with a policy.
__device__ __forceinline__ void tma_load_elected(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint64_t policy) {
    asm volatile(
        "{ .reg .pred elected;\nelect.sync _|elected, 0xffffffff;\n"
        "@elected cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5; }\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
        : "memory");
}

/// tma_load_multicast with a policy.
__device__ __forceinline__ void tma_load_multicast_elected(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks, uint64_t policy) {
    asm volatile(
        "{ .reg .pred elected;\nelect.sync _|elected, 0xffffffff;\n"
        "@elected cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6; }\n" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(ranks), "l"(policy)
        : "memory");
}
