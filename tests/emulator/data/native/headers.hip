// SPDX-License-Identifier: MIT
// The headers that stand in for ROCm's, on both sides.
#include <hip/hip_bf16.h>
#include <hip/hip_bfloat16.h>
#include <hip/hip_complex.h>
#include <hip/hip_fp16.h>
#include <hip/hip_fp8.h>

#include <cstdio>

__host__ __device__ float halves(int i) {
    const __half a = __float2half(0.5f * static_cast<float>(i)), b = __hadd(a, __int2half_rn(3)) * a;
    const __half2 pair = __hfma2(__halves2half2(a, b), __float2half2_rn(2.0f), __half2half2(hsqrt(b + __half(1.0f))));
    return __half2float(__hmax(pair.x, pair.y)) + (a < b ? 100.0f : 200.0f) + static_cast<float>(__half2int_rn(b));
}

__host__ __device__ float brains(int i) {
    const hip_bfloat16 a = hfloor(hlog2(__hip_bfloat16(i + 1)));
    using Eight = __hip_fp8_e4m3_fnuz;
    const __hip_fp8x4_e4m3_fnuz four(__hip_bfloat162(a, -a), __hip_bfloat162(__hip_bfloat16(0.5f), a));
    const __hip_fp8x2_e4m3_fnuz two(__half2(__half(i), __half(-1)));
    const float4 parts = four;
    if (parts.x != -parts.y || parts.z != 0.5f || parts.w != parts.x || static_cast<float2>(two).y != -1) return -1;
    return __bfloat162float(a) * 1000.0f + static_cast<float>(__hip_cvt_float_to_fp8(
        300.0f + static_cast<float>(i), Eight::__default_saturation, Eight::__default_interpret));
}

__host__ __device__ float complexes(int i) {
    const hipFloatComplex a = make_hipFloatComplex(static_cast<float>(i), 1.0f);
    const hipFloatComplex q = hipCdivf(hipCmulf(a, hipConjf(a)), make_hipFloatComplex(2.0f, 0.0f));
    return hipCrealf(hipCfmaf(q, a, a)) + hipCabsf(q);
}

__global__ void run(float* out) {
    out[threadIdx.x] = halves(static_cast<int>(threadIdx.x));
    out[64 + threadIdx.x] = complexes(static_cast<int>(threadIdx.x));
    out[128 + threadIdx.x] = __half2float(__shfl_down(__float2half(static_cast<float>(threadIdx.x)), 1u));
    out[192 + threadIdx.x] = brains(static_cast<int>(threadIdx.x));
    unsafeAtomicAdd(reinterpret_cast<__half2*>(out + 256), __half2(__half(1), __half(threadIdx.x)));
    unsafeAtomicAdd(
        reinterpret_cast<__hip_bfloat162*>(out + 257), __hip_bfloat162(__hip_bfloat16(0.5f), __hip_bfloat16(2.0f)));
}

int main() {
    float* out = nullptr;
    if (hipMallocManaged(&out, 258 * sizeof *out)) return 2;
    out[256] = out[257] = 0;
    run<<<1, 64>>>(out);
    int wrong = 0;
    for (int i = 0; i < 64; ++i) {
        wrong += out[i] != halves(i);
        wrong += fabsf(out[64 + i] - complexes(i)) > 1e-5f * fabsf(complexes(i));
        wrong += out[192 + i] != brains(i) || out[192 + i] != floorf(log2f(static_cast<float>(i + 1))) * 1000 + 127;
        wrong += out[128 + i] != static_cast<float>(i == 63 ? 63 : i + 1);
    }
    const __half2 sum = *reinterpret_cast<__half2*>(out + 256);
    const __hip_bfloat162 brain_sum = *reinterpret_cast<__hip_bfloat162*>(out + 257);
    wrong += sum.x != __half(64) || sum.y != __half(63 * 32);
    wrong += static_cast<float>(brain_sum.x) != 32.0f || static_cast<float>(brain_sum.y) != 128.0f;
    std::printf("%d %g\n", wrong, static_cast<double>(out[3]));
    return wrong != 0;
}
