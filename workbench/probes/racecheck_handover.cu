// SPDX-License-Identifier: MIT
// Which orders through named barriers compute-sanitizer's racecheck sees.
//
//     for form in 0 1 2 3 4 5 6 7 8 9 10; do
//         compute-sanitizer --tool racecheck python benchmarks/race.py probe workbench/probes/racecheck_handover.cu $form; done
//
// Two warpgroups exchange 128 numbers each, eight times, ordered by named barriers of 256 threads; a third warpgroup of the block
// ends at once.
//   0  each writes its own, arrives at its barrier, waits at the other's and reads the other's, as in mla/wgmma_mainloop.h;
//      what one overwrites the other has read before it arrived. The manual of PTX has this pair as its producer and consumer
//   1  both write, wait at one instruction, read, and wait again
//   2  as 1, barrier 10, as in mla/gather.h
//   3  as 1, with blocks in clusters of two
//   4  as 1, and one thread is late: it writes a number for all when the clock says so
//   5  2, 3 and 4 together
//   6  as 2, behind a barrier where one warpgroup has arrived without waiting and the other waited
//   7  as 6, behind form 0
//   8  as 2, behind barriers of 128 threads at which each warpgroup waited by itself
//   9  as 2, behind such barriers, at which the first waited more often than the second
//   10 as 2, behind an arrival at an mbarrier that nobody waits for
// racecheck reports 0, 6, 7 and 9, whose sums are right, and nothing of the others (NVIDIA H200, CUDA 13.0): where threads have waited
// at barriers unequally often, an arrival not being a wait, it orders nothing by a barrier at which all of them wait.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ptx/barrier.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"

constexpr int kReady = 1, kOwn = 5, kStored = 8, kRounds = 8;

__device__ int hand_over(int (*numbers)[128], int group, int thread) {
    int sum = 0;
    if (group == 0) {
        for (int i = 0; i < kRounds; ++i) {
            if (i > 0) {
                named_barrier_sync(kReady + 1, 256);
                sum += numbers[1][thread ^ 1];
            }
            numbers[0][thread] = i;
            named_barrier_arrive(kReady, 256);
        }
        named_barrier_sync(kReady + 1, 256);
        return sum + numbers[1][thread ^ 1];
    }
    for (int i = 0; i < kRounds; ++i) {
        named_barrier_sync(kReady, 256);
        sum += numbers[0][thread ^ 1];
        numbers[1][thread] = i;
        named_barrier_arrive(kReady + 1, 256);
    }
    return sum;
}

template <int kBarrier, bool kLate>
__device__ int meet(int (*numbers)[128], int* late, int group, int thread) {
    int sum = 0;
    for (int i = 0; i < kRounds; ++i) {
        if (kLate && group == 0 && thread == 0) {
            __nanosleep(2000);
            *late = i;
        }
        numbers[group][thread] = i;
        named_barrier_sync(kBarrier, 256);
        sum += kLate ? *late : numbers[group ^ 1][thread ^ 5];
        named_barrier_sync(kBarrier, 256);
    }
    return sum;
}

template <int kForm>
__global__ void __launch_bounds__(384, 1) exchange(int* sums) {
    __shared__ int numbers[2][128], others[2][128], late;
    const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
    if (kForm == 3 || kForm == 5) cluster_barrier();
    if (group == 2) return;
    int sum = 0;
    if (kForm == 6) {
        if (group == 1) named_barrier_arrive(kStored, 256);
        else named_barrier_sync(kStored, 256);
    }
    if (kForm == 8 || kForm == 9) named_barrier_sync(kOwn + group, 128);
    if (kForm == 9 && group == 0) named_barrier_sync(kOwn, 128);
    if (kForm == 10) {
        __shared__ uint64_t barrier;
        if (thread == 0 && group == 0) mbarrier_init(shared_address(&barrier), 256);
        named_barrier_sync(kOwn, 256);
        mbarrier_arrive(shared_address(&barrier));
    }
    if (kForm == 0 || kForm == 7) sum += hand_over(others, group, thread);
    if (kForm != 0)
        sum += meet < kForm == 2 || kForm >= 5 ? 10 : 4, kForm == 4 || kForm == 5 > (numbers, &late, group, thread);
    sums[blockIdx.x * 256 + threadIdx.x] = sum;
}

template <int kForm>
int run() {
    constexpr int kBlocks = 2;
    int *sums = nullptr, found[256 * kBlocks], wrong = 0;
    cudaMalloc(&sums, sizeof found);
    cudaLaunchAttribute pair = {};
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = kForm == 3 || kForm == 5 ? 2 : 1;
    pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(kBlocks);
    launch.blockDim = dim3(384);
    launch.attrs = &pair;
    launch.numAttrs = 1;
    cudaLaunchKernelEx(&launch, exchange<kForm>, sums);
    cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost);
    for (int sum : found) wrong += sum != (kForm == 7 ? 56 : 28);
    std::printf(
        "form %d: %d of %d sums are wrong; %s\n", kForm, wrong, 256 * kBlocks, cudaGetErrorString(cudaGetLastError()));
    return wrong != 0;
}

int main(int count, char** arguments) {
    switch (count > 1 ? std::atoi(arguments[1]) : 0) {
        case 0: return run<0>();
        case 1: return run<1>();
        case 2: return run<2>();
        case 3: return run<3>();
        case 4: return run<4>();
        case 5: return run<5>();
        case 6: return run<6>();
        case 7: return run<7>();
        case 8: return run<8>();
        case 9: return run<9>();
        default: return run<10>();
    }
}
