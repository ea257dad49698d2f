// SPDX-License-Identifier: MIT
// The FP8 types of gfx942, after the public reference of HIP's functions. For compilers without ROCm's own header.
// E4M3 FNUZ has the bias 8 and E5M2 FNUZ 16; neither has infinities or -0, and 0x80 is NaN.
#pragma once

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#include <cmath>
#include <type_traits>

typedef unsigned char __hip_fp8_storage_t;
typedef unsigned short __hip_fp8x2_storage_t;
typedef unsigned int __hip_fp8x4_storage_t;
enum __hip_saturation_t { __HIP_NOSAT = 0, __HIP_SATFINITE = 1 };
enum __hip_fp8_interpretation_t { __HIP_E4M3 = 0, __HIP_E5M2 = 1, __HIP_E4M3_FNUZ = 2, __HIP_E5M2_FNUZ = 3 };

namespace warpwave_fp8 {

template <int mantissa>
__host__ __device__ constexpr float largest() {
    return mantissa == 3 ? 240.0f : 57344.0f;
}

template <int mantissa>
__host__ __device__ inline float decode(__hip_fp8_storage_t bits) {
#if defined(__gfx942__)
    if constexpr (mantissa == 3) return __builtin_amdgcn_cvt_f32_fp8(bits, 0);
    else return __builtin_amdgcn_cvt_f32_bf8(bits, 0);
#else
    constexpr int bias = mantissa == 3 ? 8 : 16;
    if (bits == 0x80) return NAN;
    const int exponent = (bits & 0x7f) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    const float value = exponent ? ldexpf(static_cast<float>((1 << mantissa) | fraction), exponent - bias - mantissa)
                                 : ldexpf(static_cast<float>(fraction), 1 - bias - mantissa);
    return bits & 0x80 ? -value : value;
#endif
}

// To the nearest, ties to even. Finite numbers that are too large become the largest one if `saturate`, else NaN.
template <int mantissa>
__host__ __device__ inline __hip_fp8_storage_t encode(float value, bool saturate = true) {
    constexpr float most = largest<mantissa>();
    if (saturate && fabsf(value) <= 3.4028234e38f) value = fminf(fmaxf(value, -most), most);
#if defined(__gfx942__)
    if constexpr (mantissa == 3)
        return static_cast<__hip_fp8_storage_t>(__builtin_amdgcn_cvt_pk_fp8_f32(value, value, 0, false));
    else return static_cast<__hip_fp8_storage_t>(__builtin_amdgcn_cvt_pk_bf8_f32(value, value, 0, false));
#else
    constexpr int bias = mantissa == 3 ? 8 : 16;
    const float size = fabsf(value);
    if (!(size <= 3.4028234e38f)) return 0x80;
    if (size == 0) return 0;
    const int lowest = 1 - bias, exponent = ilogbf(size) < lowest ? lowest : ilogbf(size);
    const int steps = static_cast<int>(rintf(ldexpf(size, mantissa - exponent)));
    const int bits = steps + ((exponent - lowest) << mantissa);
    if (bits == 0) return 0;
    if (bits > 0x7f) return 0x80;
    return static_cast<__hip_fp8_storage_t>(bits | (value < 0 ? 0x80 : 0));
#endif
}

template <int mantissa>
struct Defaults {
    static constexpr __hip_saturation_t __default_saturation = __HIP_SATFINITE;
    static constexpr __hip_fp8_interpretation_t __default_interpret = mantissa == 3 ? __HIP_E4M3_FNUZ : __HIP_E5M2_FNUZ;
};

template <int mantissa>
struct Number : Defaults<mantissa> {
    __hip_fp8_storage_t __x;

    Number() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __host__ __device__ Number(T value) : __x(encode<mantissa>(static_cast<float>(value))) {}
    __host__ __device__ Number(__half value) : __x(encode<mantissa>(__half2float(value))) {}
    __host__ __device__ Number(__hip_bfloat16 value) : __x(encode<mantissa>(value)) {}

    __host__ __device__ operator float() const { return decode<mantissa>(__x); }
    __host__ __device__ explicit operator __half() const { return __half(decode<mantissa>(__x)); }
    __host__ __device__ explicit operator __hip_bfloat16() const { return __hip_bfloat16(decode<mantissa>(__x)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, float>>>
    __host__ __device__ explicit operator T() const {
        return static_cast<T>(decode<mantissa>(__x));
    }
};

template <int mantissa>
struct Pair : Defaults<mantissa> {
    __hip_fp8x2_storage_t __x;

    Pair() = default;
    __host__ __device__ Pair(float2 value)
        : __x(static_cast<__hip_fp8x2_storage_t>(encode<mantissa>(value.x) | encode<mantissa>(value.y) << 8)) {}
    __host__ __device__ Pair(__half2 value) : Pair(__half22float2(value)) {}
    __host__ __device__ Pair(__hip_bfloat162 value) : Pair(static_cast<float2>(value)) {}
    __host__ __device__ operator float2() const {
        return make_float2(
            decode<mantissa>(static_cast<unsigned char>(__x)), decode<mantissa>(static_cast<unsigned char>(__x >> 8)));
    }
};

template <int mantissa>
struct Four : Defaults<mantissa> {
    __hip_fp8x4_storage_t __x;

    Four() = default;
    __host__ __device__ Four(float4 v)
        : __x(encode<mantissa>(v.x) | encode<mantissa>(v.y) << 8 | encode<mantissa>(v.z) << 16 |
              static_cast<unsigned>(encode<mantissa>(v.w)) << 24) {}
    __host__ __device__ Four(__half2 low, __half2 high) : Four(make_float4(low.x, low.y, high.x, high.y)) {}
    __host__ __device__ Four(__hip_bfloat162 low, __hip_bfloat162 high)
        : Four(make_float4(low.x, low.y, high.x, high.y)) {}
    __host__ __device__ operator float4() const {
        const auto part = [this](int at) { return decode<mantissa>(static_cast<unsigned char>(__x >> 8 * at)); };
        return make_float4(part(0), part(1), part(2), part(3));
    }
};

}  // namespace warpwave_fp8

using __hip_fp8_e4m3_fnuz = warpwave_fp8::Number<3>;
using __hip_fp8_e5m2_fnuz = warpwave_fp8::Number<2>;
using __hip_fp8x2_e4m3_fnuz = warpwave_fp8::Pair<3>;
using __hip_fp8x2_e5m2_fnuz = warpwave_fp8::Pair<2>;
using __hip_fp8x4_e4m3_fnuz = warpwave_fp8::Four<3>;
using __hip_fp8x4_e5m2_fnuz = warpwave_fp8::Four<2>;

__host__ __device__ static inline __hip_fp8_storage_t __hip_cvt_float_to_fp8(
    float value, __hip_saturation_t saturation, __hip_fp8_interpretation_t kind) {
    return kind == __HIP_E4M3_FNUZ ? warpwave_fp8::encode<3>(value, saturation == __HIP_SATFINITE)
                                   : warpwave_fp8::encode<2>(value, saturation == __HIP_SATFINITE);
}
__host__ __device__ static inline __hip_fp8x2_storage_t __hip_cvt_float2_to_fp8x2(
    float2 value, __hip_saturation_t saturation, __hip_fp8_interpretation_t kind) {
    return static_cast<__hip_fp8x2_storage_t>(
        __hip_cvt_float_to_fp8(value.x, saturation, kind) | __hip_cvt_float_to_fp8(value.y, saturation, kind) << 8);
}
__host__ __device__ static inline __half_raw __hip_cvt_fp8_to_halfraw(
    __hip_fp8_storage_t bits, __hip_fp8_interpretation_t kind) {
    return __half(kind == __HIP_E4M3_FNUZ ? warpwave_fp8::decode<3>(bits) : warpwave_fp8::decode<2>(bits));
}
