// SPDX-License-Identifier: MIT
// A foreign file: products that ptxas serialises, an array in local memory, dynamic shared memory.
#include <cstdint>

__device__ void product(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b));
}

__global__ void serial(float* out, uint64_t a, uint64_t b, int n) {
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;");
    for (int i = 0; i < n; ++i) {
        product(d, a + i, b);
        product(d, a + i, b + 1);
        product(d, a, b + i);
        product(d, a + 2, b + i);
        d[0] += 1.0f;  // touches an accumulator that is under way
        asm volatile("wgmma.commit_group.sync.aligned;");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

__global__ void __launch_bounds__(128) indexed(float* x, int n, int k) {
    float a[64];
    for (int i = 0; i < 64; ++i) a[i] = x[i];
#pragma unroll 1
    for (int i = 0; i < n; ++i) a[(i * k) & 63] += exp2f(a[i & 63]);  // the index is known at run time only
    for (int i = 0; i < 64; ++i) x[i] = a[i];
}

__global__ void __launch_bounds__(128) reversed(float* x) {
    extern __shared__ float row[];
    row[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = row[127 - threadIdx.x];
}
