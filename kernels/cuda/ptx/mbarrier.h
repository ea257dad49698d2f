// SPDX-License-Identifier: MIT
// Barriers in shared memory that count arrivals and bytes (mbarrier, sm_90): one instruction per function.
//
// A barrier is 8 bytes. Its phases are numbered from 0 and known by their parity. A phase completes when as many arrivals
// have come as mbarrier_init said and all bytes expected of asynchronous copies have landed; then the next one begins with
// the same count. Waiting for parity x returns as soon as the latest phase of that parity is complete, so on a fresh
// barrier waiting for parity 1 returns at once: a ring's producer starts that way.
//
// -DWARPWAVE_DEBUG_TRAP makes a wait of more than two seconds end the kernel with an error instead of hanging.
#pragma once

#include <cstdint>

/// Set up a barrier for `arrivals` per phase. One thread; fence and synchronise before others use it.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Make this thread's barrier initialisations visible to the cluster and to asynchronous copies.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

/// Arrive once. Releases: what this thread did before is visible to whoever waits for the phase.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/// Arrive at a barrier that may lie in another block of the cluster; the address is one of map_shared (ptx/cluster.h).
/// Tells that block that shared memory was read; ordering global memory over the cluster would take a stronger form.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/// Arrive once and let the phase wait for `bytes` more bytes of asynchronous copies.
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Arrive when all cp.async this thread issued so far have landed. The arrival is one of those mbarrier_init counted.
__device__ __forceinline__ void mbarrier_arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}

/// Whether the latest phase of this parity is complete; may first sleep for a short while, up to a limit of the hardware.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{ .reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete; }\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

/// Whether the latest phase of this parity is complete, at once.
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{ .reg .pred complete;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete; }\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

#if defined(WARPWAVE_DEBUG_TRAP)
__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now));
    return now;
}
#endif

/// Wait until the latest phase of this parity is complete.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
#if defined(WARPWAVE_DEBUG_TRAP)
    const uint64_t start = nanoseconds();
    while (!mbarrier_try_wait(barrier, parity)) {
        if (nanoseconds() - start > 2000000000ull) asm volatile("trap;\n");
    }
#else
    while (!mbarrier_try_wait(barrier, parity)) {
    }
#endif
}
