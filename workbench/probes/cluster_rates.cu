// SPDX-License-Identifier: MIT
// Cycles, and bytes a cycle and direction, of what the two blocks of a cluster send each other's shared memory at the same time, until it
// is there: stores that count at an mbarrier (st.async of 4, 8, 16 bytes a lane), plain remote stores and an arrival, bulk copies.
//
//   python benchmarks/race.py probe workbench/probes/cluster_rates.cu
#include <cstdio>
#include <vector>

#include "common/launch_cluster.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"

enum class Form { kStore4, kStore8, kStore16, kRemote, kBulk };

constexpr int kThreads = 256, kRounds = 400, kBarriers = 128 * 1024, kSharedBytes = kBarriers + 64;

__device__ __forceinline__ void send_4(uint32_t to, float x, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];\n" ::"r"(to), "f"(x),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void send_8(uint32_t to, float x, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %1}, [%2];\n" ::"r"(to),
                 "f"(x), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void send_16(uint32_t to, float x, uint32_t barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %1, %1, %1}, [%2];\n" ::"r"(to),
        "f"(x), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void store_16(uint32_t to, float x) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %1, %1, %1};\n" ::"r"(to), "f"(x) : "memory");
}

/// kBytes per round, block and direction.
template <Form form, int kBytes>
__global__ void __launch_bounds__(kThreads, 1) rate(long long* cycles) {
    const uint32_t base = shared_address(swizzled_shared()), counted = base + kBarriers, arrived = counted + 8;
    const int thread = static_cast<int>(threadIdx.x), other = cluster_rank() ^ 1;
    if (thread == 0) {
        mbarrier_init(counted, 1);
        mbarrier_init(arrived, kThreads);
        mbarrier_fence_init();
    }
    cluster_barrier();
    const uint32_t to = map_shared(base, other), at = map_shared(counted, other), tell = map_shared(arrived, other);
    const float x = static_cast<float>(thread);
    const long long start = clock64();
    for (int round = 0; round < kRounds; ++round) {
        if (form != Form::kRemote && thread == 0) mbarrier_arrive_expect(counted, kBytes);
        if constexpr (form == Form::kBulk) {
            if (thread < 8)
                copy_to_cluster(to + thread * (kBytes / 8), base + 64 * 1024 + thread * (kBytes / 8), kBytes / 8, at);
        } else {
            constexpr int kEach = form == Form::kStore4 ? 4 : form == Form::kStore8 ? 8 : 16;
#pragma unroll
            for (int i = 0; i < kBytes / (kEach * kThreads); ++i) {
                const uint32_t place = to + (i * kThreads + thread) * kEach;
                if constexpr (form == Form::kStore4) send_4(place, x, at);
                else if constexpr (form == Form::kStore8) send_8(place, x, at);
                else if constexpr (form == Form::kStore16) send_16(place, x, at);
                else store_16(place, x);
            }
            if constexpr (form == Form::kRemote) {
                asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(tell) : "memory");
            }
        }
        mbarrier_wait(form == Form::kRemote ? arrived : counted, round % 2);
    }
    if (thread == 0) cycles[blockIdx.x] = clock64() - start;
    cluster_barrier();
}

template <Form form, int kBytes>
void measure(const char* name, int blocks, long long* cycles) {
    for (int i = 0; i < 2; ++i)
        launch_cluster(rate<form, kBytes>, blocks, kThreads, 2, kSharedBytes, false, nullptr, cycles);
    std::vector<long long> all(blocks);
    const cudaError_t error = cudaMemcpy(all.data(), cycles, blocks * sizeof(long long), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (const long long each : all) sum += static_cast<double>(each);
    const double mean = sum / blocks / kRounds;
    std::printf(
        "%-12s %2d KB each way: %5.0f cycles, %4.1f bytes a cycle; %s\n", name, kBytes / 1024, mean, kBytes / mean,
        cudaGetErrorString(error));
}

template <Form form>
void sizes(const char* name, int blocks, long long* cycles) {
    measure<form, 4096>(name, blocks, cycles);
    measure<form, 16384>(name, blocks, cycles);
    measure<form, 32768>(name, blocks, cycles);
    measure<form, 65536>(name, blocks, cycles);
}

int main() {
    int blocks = 0;
    if (cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0) != cudaSuccess) return 1;
    blocks -= blocks % 2;
    long long* cycles = nullptr;
    if (cudaMalloc(&cycles, blocks * sizeof(long long)) != cudaSuccess) return 1;
    sizes<Form::kStore4>("st.async 4", blocks, cycles);
    sizes<Form::kStore8>("st.async 8", blocks, cycles);
    sizes<Form::kStore16>("st.async 16", blocks, cycles);
    sizes<Form::kRemote>("st remote 16", blocks, cycles);
    sizes<Form::kBulk>("bulk copy", blocks, cycles);
    return 0;
}
