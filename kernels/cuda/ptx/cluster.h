// SPDX-License-Identifier: MIT
// Clusters (sm_90): blocks that run together and reach each other's shared memory. A plain launch is clusters of one.
#pragma once

#include <cstdint>

/// Index of the cluster in the grid.
__device__ __forceinline__ int cluster_index() {
    uint32_t index;
    asm("mov.u32 %0, %%clusterid.x;\n" : "=r"(index));
    return static_cast<int>(index);
}

/// Clusters in the grid.
__device__ __forceinline__ int cluster_count() {
    uint32_t count;
    asm("mov.u32 %0, %%nclusterid.x;\n" : "=r"(count));
    return static_cast<int>(count);
}

/// Index of this block in its cluster.
__device__ __forceinline__ int cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
    return static_cast<int>(rank);
}

/// Blocks in the cluster.
__device__ __forceinline__ int cluster_blocks() {
    uint32_t blocks;
    asm("mov.u32 %0, %%cluster_nctarank;\n" : "=r"(blocks));
    return static_cast<int>(blocks);
}

/// First half of a barrier of all threads of the cluster: what this thread wrote is visible to those that wait.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}

/// The same without that promise, and without the fence of all memory it takes: for threads that have only read, or whose
/// writes a fence of their own or an mbarrier announces.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}

/// Second half: returns when all threads that have not ended arrived.
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory"); }

/// Both halves.
__device__ __forceinline__ void cluster_barrier() {
    cluster_arrive();
    cluster_wait();
}

/// The cluster-wide address of what lies at `shared` in block `rank`.
__device__ __forceinline__ uint32_t map_shared(uint32_t shared, int rank) {
    uint32_t mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(mapped) : "r"(shared), "r"(rank));
    return mapped;
}

/// 16 bytes from a cluster-wide address.
__device__ __forceinline__ float4 load_cluster(uint32_t mapped) {
    float4 value;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(mapped)
                 : "memory");
    return value;
}

/// A number from a cluster-wide address.
__device__ __forceinline__ float load_cluster_float(uint32_t mapped) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];\n" : "=f"(value) : "r"(mapped) : "memory");
    return value;
}

/// Copy `bytes` from `shared` of this block to a cluster-wide address, and count them at the mbarrier at `barrier`, in the same
/// block as that address, when they are there. One thread, after fence_async_shared (ptx/tma.h); all three multiples of 16 but
/// the barrier. Nothing tells this block when it has been read: it must not end or reuse the memory before the other tells it.
__device__ __forceinline__ void copy_to_cluster(uint32_t mapped, uint32_t shared, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(mapped),
        "r"(shared), "r"(bytes), "r"(barrier)
        : "memory");
}
