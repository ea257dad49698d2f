// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Small kernels for test_isa.py: wave instructions by the wrappers of kernels/hip/isa, and kernels with a fault each,
// whose last argument is 0, and the same without it.
#include "launch.h"
#include "isa/buffer.h"
#include "isa/lanes.h"
#include "isa/mfma.h"
#include "isa/perm.h"

__global__ void multiply(const u32x2* a, const u32x2* b, f32x4* c, int kind) {
    const int lane = lane_id();
    f32x4 sum = c[lane];
    if (kind == 0) sum = mfma_16x16x32_fp8(a[lane], b[lane], sum);
    if (kind == 1) sum = mfma_16x16x16_bf16(a[lane], b[lane], sum);
    if (kind == 2) sum = mfma_16x16x16_f16(a[lane], b[lane], sum);
    c[lane] = sum;
}

__global__ void exchange(float* out) {
    const int lane = lane_id();
    out[threadIdx.x] = from_lane_xor_16(static_cast<float>(lane));
    out[128 + threadIdx.x] = from_lane_xor_32(static_cast<float>(lane));
    out[256 + threadIdx.x] = static_cast<float>(wave_id());
    out[384 + threadIdx.x] = static_cast<float>(byte_perm(0x03020100u, 0x07060504u, 0x06010402u));
}

__global__ void copy(const float* in, float* out, int bytes) {
    const int offset = static_cast<int>(threadIdx.x) * 16;
    buffer_store_16(make_buffer(out, bytes - 8), offset, buffer_load_16(make_buffer(in, bytes), offset));
}

__global__ void reverse(float* out, int mended) {
    __shared__ float values[256];
    values[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (mended) __syncthreads();
    out[threadIdx.x] = values[255 - threadIdx.x];
}

/// A wave that has ended is waited for at no barrier; one that goes on needs what the others' barrier is for.
__global__ void half_a_barrier(float* out, int mended) {
    __shared__ float values[128];
    values[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (mended || threadIdx.x < 64) __syncthreads();
    out[threadIdx.x] = values[127 - threadIdx.x];
}

__global__ void uninitialised(float* out, int mended) {
    __shared__ float values[64];
    if (mended) values[threadIdx.x] = 0.0f;
    if (blockIdx.x == 1) out[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = 1.0f;
}

/// Half of the wave reads what the other half holds, which is not there to give it: the result is 0.
__global__ void half_a_wave(float* out, int mended) {
    float value = 0.0f;
    if (mended || lane_id() < 32) value = from_lane_xor_32(static_cast<float>(lane_id() + 1));
    if (lane_id() < 32) out[lane_id()] = value;
}

__global__ void store_at(float* out, int index) { out[index] = 1.0f; }

__global__ void nothing() {}

extern "C" int run(int which, void* a, void* b, void* c, int argument) {
    float* const out = static_cast<float*>(c);
    void* const queue = nullptr;
    if (which == 0)
        LAUNCH(multiply, dim3(1), dim3(64), 0, queue)(
            static_cast<u32x2*>(a), static_cast<u32x2*>(b), static_cast<f32x4*>(c), argument);
    if (which == 1) LAUNCH(exchange, dim3(1), dim3(128), 0, queue)(out);
    if (which == 2) LAUNCH(copy, dim3(1), dim3(64), 0, queue)(static_cast<float*>(a), out, argument);
    if (which == 3) LAUNCH(reverse, dim3(1), dim3(256), 0, queue)(out, argument);
    if (which == 4) LAUNCH(half_a_barrier, dim3(1), dim3(128), 0, queue)(out, argument);
    if (which == 5) LAUNCH(uninitialised, dim3(2), dim3(64), 0, queue)(out, argument);
    if (which == 6) LAUNCH(half_a_wave, dim3(1), dim3(64), 0, queue)(out, argument);
    if (which == 7) LAUNCH(store_at, dim3(1), dim3(64), 0, queue)(out, argument);
    if (which == 8) LAUNCH(nothing, dim3(argument ? 1 : 1 << 26), dim3(64), 0, queue)();
    return LAUNCH_STATUS();
}
