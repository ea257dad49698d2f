// SPDX-License-Identifier: MIT
// Cycles of wgmma.m64nNk16 in fp16 by where A comes from, how many products follow each other on the same sums, and warpgroups.
//
//   nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -I kernels/cuda benchmarks/dev/wgmma_rates.cu -o wgmma_rates && ./wgmma_rates
#include <cstdio>

#include "ptx/shared_address.h"
#include "ptx/wgmma_16bit.h"

constexpr int kRounds = 64, kProducts = 16;  // of a round, one commit group

/// kChains sums in turns; kRegisters: A from registers.
template <int kN, int kChains, bool kRegisters>
__global__ void __launch_bounds__(256, 1) rate(long long* cycles, float* out) {
    uint8_t* const memory = swizzled_shared();
    for (int i = threadIdx.x; i < 32768 / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(memory)[i] = 0;
    __syncthreads();
    const uint64_t b = wgmma_operand(shared_address(memory)), a = wgmma_operand(shared_address(memory) + 16384);
    float sums[kChains][kN / 2] = {};
    uint32_t registers[4] = {threadIdx.x, 0, 0, 0};
    __syncthreads();
    const long long start = clock64();
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kProducts; ++i) {
            if constexpr (kRegisters) Wgmma16<kN, Fp16>::product(sums[i % kChains], registers, b + 2 * (i % 4), true);
            else Wgmma16<kN, Fp16>::product(sums[i % kChains], a + 2 * (i % 4), b + 2 * (i % 4), true);
        }
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) wgmma_results(sums[chain]);
    }
    __syncthreads();
    const long long end = clock64();
    float sum = 0.0f;
    for (int chain = 0; chain < kChains; ++chain) {
        for (int i = 0; i < kN / 2; ++i) sum += sums[chain][i];
    }
    out[threadIdx.x] = sum;
    if (threadIdx.x == 0) *cycles = end - start;
}

template <int kN, int kChains, bool kRegisters>
void run(long long* cycles, float* out) {
    for (int warpgroups = 1; warpgroups <= 2; ++warpgroups) {
        long long result = 0;
        for (int i = 0; i < 2; ++i) rate<kN, kChains, kRegisters><<<1, 128 * warpgroups, 32768>>>(cycles, out);
        cudaMemcpy(&result, cycles, sizeof result, cudaMemcpyDeviceToHost);
        std::printf("n%d, %d sums, A in %s, %d warpgroups: %.1f cycles a product\n", kN, kChains,
                    kRegisters ? "registers" : "shared memory", warpgroups,
                    static_cast<double>(result) / (kRounds * kProducts * warpgroups));
    }
}

int main() {
    long long* cycles;
    float* out;
    cudaMalloc(&cycles, sizeof *cycles);
    cudaMalloc(&out, 1024 * sizeof *out);
    run<16, 1, true>(cycles, out);
    run<16, 2, true>(cycles, out);
    run<16, 4, true>(cycles, out);
    run<16, 2, false>(cycles, out);
    run<32, 1, true>(cycles, out);
    run<32, 2, true>(cycles, out);
    run<64, 1, true>(cycles, out);
    run<64, 2, true>(cycles, out);
    run<64, 1, false>(cycles, out);
    run<128, 1, true>(cycles, out);
    std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
