// SPDX-License-Identifier: MIT
// Which orders through an mbarrier compute-sanitizer's racecheck sees.
//
//     for who in 0 1 2; do
//         compute-sanitizer --tool racecheck python benchmarks/race.py probe workbench/probes/racecheck_elected.cu $who; done
//
// One warp writes a slot in shared memory eight times, another reads it and gives it back through a barrier that counts
//   0  one arrival, by lane 0, after __syncwarp: correct, as __syncwarp orders the other lanes' reads before lane 0's arrival
//   1  32 arrivals, one by each lane
//   2  one arrival, by lane 0, which alone reads
// racecheck reports 0 and is silent about 1 and 2 (NVIDIA H200, CUDA 13.0): it orders those threads which arrive themselves. So
// it reports what producers overwrite in any ring that is given back by one lane per warp.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ptx/ldst.h"
#include "ptx/mbarrier.h"

template <int kWho>
__global__ void pass_through_slot(int* sums) {
    __shared__ uint64_t barriers[2];
    __shared__ int slot;
    const uint32_t full = shared_address(&barriers[0]), empty = shared_address(&barriers[1]);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(empty, kWho == 1 ? 32 : 1);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int i = 0; i < 8 && lane == 0; ++i) {
            mbarrier_wait(empty, i % 2 ^ 1);
            slot = i;
            mbarrier_arrive(full);
        }
    } else {
        int sum = 0;
        for (int i = 0; i < 8; ++i) {
            mbarrier_wait(full, i % 2);
            if (kWho != 2 || lane == 0) sum += slot;
            __syncwarp();
            if (kWho == 1 || lane == 0) mbarrier_arrive(empty);
        }
        sums[lane] = sum;
    }
}

int main(int, char** arguments) {
    int* sums = nullptr;
    int first = 0;
    cudaMalloc(&sums, 32 * sizeof(int));
    switch (std::atoi(arguments[1])) {
        case 0: pass_through_slot<0><<<1, 64>>>(sums); break;
        case 1: pass_through_slot<1><<<1, 64>>>(sums); break;
        default: pass_through_slot<2><<<1, 64>>>(sums);
    }
    cudaMemcpy(&first, sums, sizeof first, cudaMemcpyDeviceToHost);
    std::printf("sum of lane 0: %d, 28 expected; %s\n", first, cudaGetErrorString(cudaGetLastError()));
    return first != 28;
}
