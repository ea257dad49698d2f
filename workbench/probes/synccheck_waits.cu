// SPDX-License-Identifier: MIT
// Which waits compute-sanitizer's synccheck reports.
//
//     for form in 0 1 2 3 4 5 6; do
//         compute-sanitizer --tool synccheck python benchmarks/race.py probe workbench/probes/synccheck_waits.cu $form; done
//
// Two warpgroups of a block of three meet six times at a named barrier of 256 threads; the third has nothing to do with it:
//   0  all at one instruction
//   1  each warpgroup at an instruction of its own. The hardware counts whoever arrives, but the manual of PTX has bar.sync, which
//      is barrier.sync.aligned, executed by all threads of a block as the same instruction
//   2  one arrives where the other waits, and the other way round at a second barrier: the manual's producer and consumer
//   3  as 1, without .aligned
// The warps of three roles wait for the cluster's barrier (its .aligned asks only that a warp's threads agree):
//   4  at three instructions
// One warpgroup waits for its products (wgmma.wait_group: all threads of the warpgroup execute the same one, or none):
//   5  all four warps
//   6  all four, and one of them once more, on its own
// synccheck reports 1 (divergent threads in block) and 6 (warpgroup MMA sequence error), and nothing else (NVIDIA H200, CUDA 13.0).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ptx/barrier.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/wgmma.h"

__device__ __forceinline__ void wait_unaligned(int id, int threads) {
    asm volatile("barrier.cta.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

template <int kForm>
__device__ void meet(int group) {
    for (int i = 0; i < 6; ++i) {
        if (kForm == 0) {
            named_barrier_sync(1, 256);
        } else if (group == 0) {
            if (kForm == 1) named_barrier_sync(1, 256);
            if (kForm == 2) named_barrier_arrive(1, 256);
            if (kForm == 2) named_barrier_sync(2, 256);
            if (kForm == 3) wait_unaligned(1, 256);
            asm volatile("// the first warpgroup's\n");  // or the compiler makes one instruction of both
        } else {
            if (kForm <= 2) named_barrier_sync(1, 256);
            if (kForm == 2) named_barrier_arrive(2, 256);
            if (kForm == 3) wait_unaligned(1, 256);
            asm volatile("// the second's\n");
        }
    }
}

template <int kForm>
__global__ void wait_at(float* sums) {
    __shared__ alignas(1024) uint8_t codes[2 * 64 * 128];
    const int group = static_cast<int>(threadIdx.x) / 128, warp = static_cast<int>(threadIdx.x) / 32;
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof codes); i += static_cast<int>(blockDim.x)) {
        codes[i] = 0x38;  // 1 in e4m3
    }
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();
    float sum = 1;
    if (kForm == 4) {
        cluster_arrive();
        if (group == 0) {
            cluster_wait();
            sum += 1;
        } else if (group == 1) {
            cluster_wait();
            sum += 2;
        } else {
            cluster_wait();
            sum += 3;
        }
    } else if (kForm <= 3) {
        if (group < 2) meet<kForm>(group);
    } else if (group == 0) {
        float d[32] = {};
        wgmma_fence();
        const uint64_t a = wgmma_operand(shared_address(codes)), b = wgmma_operand(shared_address(codes + 64 * 128));
        Wgmma<64>::product(d, a, b, true);
        wgmma_commit();
        if (kForm == 6 && warp == 2) {
            wgmma_wait<0>();
            sum += 1;
        }
        wgmma_wait<0>();
        wgmma_results(d);
        for (float x : d) sum += x;
    }
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <int kForm>
void run(float* sums) {
    cudaLaunchAttribute pair = {};
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = 2;
    pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(4);
    launch.blockDim = dim3(384);
    launch.attrs = &pair;
    launch.numAttrs = 1;
    cudaLaunchKernelEx(&launch, wait_at<kForm>, sums);
}

int main(int count, char** arguments) {
    const int form = count > 1 ? std::atoi(arguments[1]) : 0;
    float* sums = nullptr;
    float first = 0;
    cudaMalloc(&sums, 4 * 384 * sizeof(float));
    switch (form) {
        case 0: run<0>(sums); break;
        case 1: run<1>(sums); break;
        case 2: run<2>(sums); break;
        case 3: run<3>(sums); break;
        case 4: run<4>(sums); break;
        case 5: run<5>(sums); break;
        default: run<6>(sums);
    }
    cudaMemcpy(&first, sums, sizeof first, cudaMemcpyDeviceToHost);
    // A product of ones: 32 in each of a thread's 32 accumulators.
    const float expected = form == 4 ? 2.0f : form >= 5 ? 1025.0f : 1.0f;
    std::printf(
        "form %d: sum of thread 0: %g, %g expected; %s\n", form, first, expected,
        cudaGetErrorString(cudaGetLastError()));
    return first != expected;
}
