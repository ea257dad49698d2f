// SPDX-License-Identifier: MIT
// Cycles of wgmma.m64nNk16 in fp16 by where A comes from, how many products follow each other on the same sums and before a wait,
// and warpgroups; of wgmma.m64nNk32 in e4m3 with A from registers; and of what stands around products whose A is converted from
// e4m3 on the way.
//
//   python benchmarks/race.py probe workbench/probes/wgmma_rates.cu
#include <cstdio>

#include "ptx/convert.h"
#include "ptx/ldst.h"
#include "ptx/wgmma.h"

constexpr int kRounds = 64, kProducts = 16;  // of a round, one commit group

/// kChains sums in turns; kRegisters: A from registers; kAtOnce products between two waits.
template <int kN, int kChains, bool kRegisters, int kAtOnce>
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
        for (int i = 0; i < kAtOnce; ++i) {
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

/// e4m3, A in registers, one sum.
template <int kN>
__global__ void __launch_bounds__(384, 1) rate_e4m3(long long* cycles, float* out) {
    uint8_t* const memory = swizzled_shared();
    for (int i = threadIdx.x; i < 32768 / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(memory)[i] = 0;
    __syncthreads();
    const uint64_t b = wgmma_operand(shared_address(memory));
    float sums[kN / 2] = {};
    uint32_t registers[4] = {threadIdx.x, 0, 0, 0};
    __syncthreads();
    const long long start = clock64();
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kProducts; ++i) Wgmma<kN>::product(sums, registers, b + 2 * (i % 4), true);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_results(sums);
    }
    __syncthreads();
    const long long end = clock64();
    float sum = 0.0f;
    for (int i = 0; i < kN / 2; ++i) sum += sums[i];
    out[threadIdx.x] = sum;
    if (threadIdx.x == 0) *cycles = end - start;
}

enum Around { kProduct = 1, kGroup = 2, kConvert = 4, kLoad = 8, kSort = 16 };

/// Chunks of two products of 16 columns, with five buffers of operands: what kWhat says of the product, a fence and a group for each
/// chunk, eight conversions, a byte permutation before each two of them, and an ldmatrix.
template <int kWhat>
__global__ void __launch_bounds__(384, 1) chunks(long long* cycles, float* out) {
    constexpr int kBuffers = 5, kChunks = 16;
    uint8_t* const memory = swizzled_shared();
    for (int i = threadIdx.x; i < 65536 / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(memory)[i] = 0;
    __syncthreads();
    const uint64_t b = wgmma_operand(shared_address(memory));
    const uint32_t from = shared_address(memory) + 2048 + threadIdx.x % 32 * 656 + threadIdx.x / 32 % 4 * 16;
    float sums[8][8] = {};
    uint32_t operands[kBuffers][2][4], bytes[2][4];
    const auto some = [&](uint32_t& x) { x = *reinterpret_cast<const volatile uint32_t*>(memory + threadIdx.x * 4); };
#pragma unroll
    for (int i = 0; i < kBuffers * 8; ++i) some(operands[i / 8][i / 4 % 2][i % 4]);
#pragma unroll
    for (int i = 0; i < 8; ++i) some(bytes[i / 4][i % 4]);
    __syncthreads();
    const long long start = clock64();
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        if constexpr ((kWhat & kGroup) == 0) wgmma_fence();
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            uint32_t (&raw)[4] = bytes[chunk % 2];
            if constexpr ((kWhat & kLoad) != 0)
                ldmatrix_x4_trans(bytes[(chunk + 1) % 2], from + chunk / 8 * 20992 + chunk % 8 * 64);
            else if constexpr ((kWhat & kConvert) != 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    raw[i] = __float_as_uint(__uint_as_float(raw[i]) * 1.5f);  // others each time
            }
            if constexpr ((kWhat & kGroup) != 0) {
                if (chunk >= kBuffers) wgmma_wait<kBuffers - 1>();
            }
            uint32_t (&to)[2][4] = operands[chunk % kBuffers];
            if constexpr ((kWhat & kConvert) != 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const uint32_t sorted = (kWhat & kSort) != 0 ? permute_bytes<0x3120>(raw[i], raw[i]) : raw[i];
                    to[i / 2][i % 2 * 2] = unpack_e4m3_low(sorted);
                    to[i / 2][i % 2 * 2 + 1] = unpack_e4m3_high(sorted);
                }
            }
            if constexpr ((kWhat & kGroup) != 0) wgmma_fence();
            if constexpr ((kWhat & kProduct) != 0) {
#pragma unroll
                for (int i = 0; i < 2; ++i) Wgmma16<16, Fp16>::product(sums[chunk % 8], to[i], b + 2 * i, true);
            } else {
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    sums[chunk % 8][i] += __uint_as_float(to[i / 4][i % 4]);  // so that they are made
            }
            if constexpr ((kWhat & kGroup) != 0) wgmma_commit();
        }
        if constexpr ((kWhat & kGroup) == 0) wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 8; ++i) wgmma_results(sums[i]);
    }
    __syncthreads();
    const long long end = clock64();
    float sum = 0.0f;
    for (int i = 0; i < 64; ++i) sum += sums[i / 8][i % 8];
    out[threadIdx.x] = sum;
    if (threadIdx.x == 0) *cycles = end - start;
}

/// A page's values: 16 chunks.
template <int kWhat>
void run_chunks(const char* what, long long* cycles, float* out) {
    cudaFuncSetAttribute(chunks<kWhat>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    std::printf("%s:", what);
    for (int warpgroups = 1; warpgroups <= 3; ++warpgroups) {
        long long result = 0;
        for (int i = 0; i < 2; ++i) chunks<kWhat><<<1, 128 * warpgroups, 65536>>>(cycles, out);
        cudaMemcpy(&result, cycles, sizeof result, cudaMemcpyDeviceToHost);
        std::printf("  %.0f", static_cast<double>(result) / kRounds);
    }
    std::printf(" cycles for 16 chunks (1, 2, 3 warpgroups)\n");
}

template <int kN>
void run_e4m3(long long* cycles, float* out) {
    for (int warpgroups = 1; warpgroups <= 2; ++warpgroups) {
        long long result = 0;
        for (int i = 0; i < 2; ++i) rate_e4m3<kN><<<1, 128 * warpgroups, 32768>>>(cycles, out);
        cudaMemcpy(&result, cycles, sizeof result, cudaMemcpyDeviceToHost);
        std::printf(
            "e4m3, n%d, A in registers, %d warpgroups: %.1f cycles a product\n", kN, warpgroups,
            static_cast<double>(result) / (kRounds * kProducts * warpgroups));
    }
}

template <int kN, int kChains, bool kRegisters, int kAtOnce = kProducts>
void run(long long* cycles, float* out) {
    for (int warpgroups = 1; warpgroups <= 2; ++warpgroups) {
        long long result = 0;
        for (int i = 0; i < 2; ++i) rate<kN, kChains, kRegisters, kAtOnce><<<1, 128 * warpgroups, 32768>>>(cycles, out);
        cudaMemcpy(&result, cycles, sizeof result, cudaMemcpyDeviceToHost);
        std::printf(
            "n%d, %d sums, A in %s, %d products and a wait, %d warpgroups: %.1f cycles a product\n", kN, kChains,
            kRegisters ? "registers" : "shared memory", kAtOnce, warpgroups,
            static_cast<double>(result) / (kRounds * kAtOnce * warpgroups));
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
    run<64, 1, false, 1>(cycles, out);
    run<64, 1, false, 4>(cycles, out);
    run<64, 4, false>(cycles, out);
    run<128, 1, true>(cycles, out);
    run_e4m3<16>(cycles, out);
    run_e4m3<32>(cycles, out);
    run_e4m3<64>(cycles, out);
    run_chunks<kProduct>("products", cycles, out);
    run_chunks<kProduct | kGroup>("products in groups", cycles, out);
    run_chunks<kConvert>("conversions", cycles, out);
    run_chunks<kConvert | kSort>("conversions, permutations", cycles, out);
    run_chunks<kConvert | kSort | kLoad>("conversions, permutations, loads", cycles, out);
    run_chunks<kProduct | kGroup | kConvert>("products in groups, conversions", cycles, out);
    run_chunks<kProduct | kGroup | kConvert | kSort>("products in groups, conversions, permutations", cycles, out);
    run_chunks<kProduct | kGroup | kConvert | kSort | kLoad>("all", cycles, out);
    std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
