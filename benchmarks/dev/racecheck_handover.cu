// SPDX-License-Identifier: MIT
// Which orders through named barriers compute-sanitizer's racecheck sees.
//
//     nvcc -O3 -lineinfo -gencode arch=compute_90a,code=sm_90a -Ikernels/cuda -Ikernels/common -o racecheck_handover \
//         benchmarks/dev/racecheck_handover.cu
//     for form in 0 1 2 3 4 5 6 7 8 9; do compute-sanitizer --tool racecheck ./racecheck_handover $form; done
//
// Two warpgroups exchange 128 numbers each, eight times, all ordered by named barriers of 256 threads. Forms 0 to 4: each writes its
// own, arrives at its barrier, waits at the other's and reads the other's, as in tile/wgmma_latent_consume.h; what one overwrites the
// other has read before it arrived. 5 to 9: both write, wait at one instruction, read, and wait again, as in tile/latent_gather.h.
//   0, 5  nothing else
//   1, 6  a third warpgroup has ended
//   2, 7  a third warpgroup has not, and has nothing to do with the barriers
//   3, 8  as 1 and 6, and registers move from the third to the others (setmaxnreg)
//   4, 9  0: warpgroup 1 arrives at a third barrier, too, before it waits, and 0 waits there; 5: numbers are written by cp.async
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ptx/cp_async.h"
#include "ptx/named_barrier.h"
#include "ptx/shared_address.h"
#include "ptx/warpgroup_registers.h"

constexpr int kReady = 1, kTurn = 3, kMeet = 4, kRounds = 8;

template <bool kTurns>
__device__ int hand_over(int (&numbers)[2][128], int group, int thread) {
    int sum = 0;
    if (group == 0) {
        for (int i = 0; i < kRounds; ++i) {
            if (i > 0) {
                named_barrier_sync(kReady + 1, 256);
                sum += numbers[1][thread ^ 1];
            }
            numbers[0][thread] = i;
            named_barrier_arrive(kReady, 256);
            if (kTurns) named_barrier_sync(kTurn, 256);
        }
    } else {
        for (int i = 0; i < kRounds; ++i) {
            if (kTurns) named_barrier_arrive(kTurn, 256);
            named_barrier_sync(kReady, 256);
            sum += numbers[0][thread ^ 1];
            numbers[1][thread] = i;
            if (i + 1 < kRounds) named_barrier_arrive(kReady + 1, 256);
        }
    }
    return sum;
}

template <bool kCopied>
__device__ int meet(int (&numbers)[2][128], const int* rounds, int group, int thread) {
    int sum = 0;
    for (int i = 0; i < kRounds; ++i) {
        if (kCopied) {
            if (thread % 4 == 0) cp_async_16(shared_address(&numbers[group][thread]), rounds + 4 * i, true);
            cp_async_commit();
            cp_async_wait<0>();
        } else {
            numbers[group][thread] = i;
        }
        named_barrier_sync(kMeet, 256);
        sum += numbers[group ^ 1][thread ^ 5];
        named_barrier_sync(kMeet, 256);
    }
    return sum;
}

template <int kForm>
__global__ void __launch_bounds__(384, 1) exchange(int* sums, const int* rounds) {
    __shared__ alignas(16) int numbers[2][128];
    const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
    constexpr int kKind = kForm % 5;
    if (group == 2) {
        if (kKind == 3) give_registers<40>();
        if (kKind == 2) __nanosleep(1000000);
        return;
    }
    if (kKind == 3) take_registers<232>();
    if (kKind == 1 || kKind == 3) __nanosleep(10000);
    sums[threadIdx.x] = kForm < 5 ? hand_over<kKind == 4>(numbers, group, thread)
                                  : meet<kKind == 4>(numbers, rounds, group, thread);
}

template <int kForm>
int run() {
    int *sums = nullptr, *rounds = nullptr, found[256], given[4 * kRounds], wrong = 0;
    for (int i = 0; i < 4 * kRounds; ++i) given[i] = i / 4;
    cudaMalloc(&sums, sizeof found);
    cudaMalloc(&rounds, sizeof given);
    cudaMemcpy(rounds, given, sizeof given, cudaMemcpyHostToDevice);
    exchange<kForm><<<1, kForm % 5 == 0 || kForm % 5 == 4 ? 256 : 384>>>(sums, rounds);
    cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 256; ++i) wrong += found[i] != (kForm < 5 && i < 128 ? 21 : 28);
    std::printf("form %d: %d of 256 sums are wrong; %s\n", kForm, wrong, cudaGetErrorString(cudaGetLastError()));
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
        default: return run<9>();
    }
}
