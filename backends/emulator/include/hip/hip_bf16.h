// SPDX-License-Identifier: MIT
// bfloat16, after the public reference of HIP's functions. For compilers without ROCm's own header.
#pragma once

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#include <cmath>
#include <type_traits>

#define WARPWAVE_BOTH __host__ __device__ static inline

struct __hip_bfloat16_raw {
    unsigned short x;
};

// To the nearest, ties to even. The compiler's own conversion needs a library on the host that older systems lack.
WARPWAVE_BOTH unsigned short warpwave_bf16_bits(float from) {
    const unsigned bits = __builtin_bit_cast(unsigned, from);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<unsigned short>(bits >> 16 | 0x40);
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct __hip_bfloat16 {
    union {
        unsigned short __x;
        unsigned short data;
    };

    __hip_bfloat16() = default;
    __host__ __device__ __hip_bfloat16(__hip_bfloat16_raw raw) : __x(raw.x) {}
    // Through single precision.
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __host__ __device__ __hip_bfloat16(T from) : __x(warpwave_bf16_bits(static_cast<float>(from))) {}
    __host__ __device__ explicit __hip_bfloat16(__half from) : __hip_bfloat16(static_cast<float>(from.data)) {}

    __host__ __device__ operator float() const { return __builtin_bit_cast(float, static_cast<unsigned>(__x) << 16); }
    __host__ __device__ operator __hip_bfloat16_raw() const { return {__x}; }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, float>>>
    __host__ __device__ explicit operator T() const {
        return static_cast<T>(static_cast<float>(*this));
    }
    __host__ __device__ static __hip_bfloat16 round_to_bfloat16(float from) { return __hip_bfloat16(from); }
    __host__ __device__ __hip_bfloat16 operator-() const { return __hip_bfloat16(-static_cast<float>(*this)); }
};
using hip_bfloat16 = __hip_bfloat16;

struct __hip_bfloat162 {
    __hip_bfloat16 x, y;
    __hip_bfloat162() = default;
    __host__ __device__ __hip_bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) : x(a), y(b) {}
    __host__ __device__ explicit __hip_bfloat162(float2 value) : x(value.x), y(value.y) {}
    __host__ __device__ operator float2() const { return make_float2(x, y); }
};

#define WARPWAVE_OPERATOR(OP, NAME)                                                                             \
    WARPWAVE_BOTH __hip_bfloat16 operator OP(__hip_bfloat16 a, __hip_bfloat16 b) {                              \
        return __hip_bfloat16(static_cast<float>(a) OP static_cast<float>(b));                                  \
    }                                                                                                           \
    WARPWAVE_BOTH __hip_bfloat16& operator OP## = (__hip_bfloat16 & a, __hip_bfloat16 b) { return a = a OP b; } \
    WARPWAVE_BOTH __hip_bfloat162 operator OP(__hip_bfloat162 a, __hip_bfloat162 b) {                           \
        return {a.x OP b.x, a.y OP b.y};                                                                        \
    }                                                                                                           \
    WARPWAVE_BOTH __hip_bfloat16 __h##NAME(__hip_bfloat16 a, __hip_bfloat16 b) { return a OP b; }               \
    WARPWAVE_BOTH __hip_bfloat162 __h##NAME##2(__hip_bfloat162 a, __hip_bfloat162 b) { return a OP b; }
WARPWAVE_OPERATOR(+, add)
WARPWAVE_OPERATOR(-, sub)
WARPWAVE_OPERATOR(*, mul)
WARPWAVE_OPERATOR(/, div)
#undef WARPWAVE_OPERATOR

#define WARPWAVE_COMPARISON(OP, NAME)                                    \
    WARPWAVE_BOTH bool operator OP(__hip_bfloat16 a, __hip_bfloat16 b) { \
        return static_cast<float>(a) OP static_cast<float>(b);           \
    }                                                                    \
    WARPWAVE_BOTH bool __h##NAME(__hip_bfloat16 a, __hip_bfloat16 b) { return a OP b; }
WARPWAVE_COMPARISON(==, eq)
WARPWAVE_COMPARISON(!=, ne)
WARPWAVE_COMPARISON(<, lt)
WARPWAVE_COMPARISON(<=, le)
WARPWAVE_COMPARISON(>, gt)
WARPWAVE_COMPARISON(>=, ge)
#undef WARPWAVE_COMPARISON

WARPWAVE_BOTH __hip_bfloat16 __float2bfloat16(float value) { return __hip_bfloat16(value); }
WARPWAVE_BOTH __hip_bfloat16 __float2bfloat16_rn(float value) { return __hip_bfloat16(value); }
WARPWAVE_BOTH __hip_bfloat16 __double2bfloat16(double value) { return __hip_bfloat16(value); }
WARPWAVE_BOTH float __bfloat162float(__hip_bfloat16 value) { return value; }
WARPWAVE_BOTH __hip_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
WARPWAVE_BOTH __hip_bfloat162 __float22bfloat162_rn(float2 value) { return {value.x, value.y}; }
WARPWAVE_BOTH float2 __bfloat1622float2(__hip_bfloat162 value) { return value; }
WARPWAVE_BOTH __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) { return {a, b}; }
WARPWAVE_BOTH __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 value) { return {value, value}; }
WARPWAVE_BOTH __hip_bfloat16 __low2bfloat16(__hip_bfloat162 value) { return value.x; }
WARPWAVE_BOTH __hip_bfloat16 __high2bfloat16(__hip_bfloat162 value) { return value.y; }
WARPWAVE_BOTH float __low2float(__hip_bfloat162 value) { return value.x; }
WARPWAVE_BOTH float __high2float(__hip_bfloat162 value) { return value.y; }
WARPWAVE_BOTH unsigned short __bfloat16_as_ushort(__hip_bfloat16 value) { return value.__x; }
WARPWAVE_BOTH short __bfloat16_as_short(__hip_bfloat16 value) { return static_cast<short>(value.__x); }
WARPWAVE_BOTH __hip_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __hip_bfloat16_raw{bits}; }
WARPWAVE_BOTH __hip_bfloat16 __hneg(__hip_bfloat16 a) { return -a; }
WARPWAVE_BOTH __hip_bfloat16 __habs(__hip_bfloat16 a) {
    return __ushort_as_bfloat16(static_cast<unsigned short>(a.__x & 0x7fff));
}
WARPWAVE_BOTH __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __hip_bfloat16(fmaf(a, b, c));
}
WARPWAVE_BOTH __hip_bfloat162 __hfma2(__hip_bfloat162 a, __hip_bfloat162 b, __hip_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
WARPWAVE_BOTH bool __hisnan(__hip_bfloat16 a) { return a != a; }
WARPWAVE_BOTH __hip_bfloat16 __hmax(__hip_bfloat16 a, __hip_bfloat16 b) { return __hisnan(a) || a < b ? b : a; }
WARPWAVE_BOTH __hip_bfloat16 __hmin(__hip_bfloat16 a, __hip_bfloat16 b) { return __hisnan(a) || b < a ? b : a; }

#define WARPWAVE_MATHS(NAME, EXPRESSION)                     \
    WARPWAVE_BOTH __hip_bfloat16 h##NAME(__hip_bfloat16 h) { \
        const float x = h;                                   \
        return __hip_bfloat16(EXPRESSION);                   \
    }                                                        \
    WARPWAVE_BOTH __hip_bfloat162 h2##NAME(__hip_bfloat162 value) { return {h##NAME(value.x), h##NAME(value.y)}; }
WARPWAVE_MATHEMATICS
#undef WARPWAVE_MATHS
#undef WARPWAVE_MATHEMATICS

#if defined(__gfx942__)
__device__ static inline __hip_bfloat162 unsafeAtomicAdd(__hip_bfloat162* to, __hip_bfloat162 value) {
    typedef short Two __attribute__((ext_vector_type(2)));
    const Two old =
        __builtin_amdgcn_flat_atomic_fadd_v2bf16(reinterpret_cast<Two*>(to), __builtin_bit_cast(Two, value));
    return __builtin_bit_cast(__hip_bfloat162, old);
}
#else
__device__ __hip_bfloat162 unsafeAtomicAdd(__hip_bfloat162* to, __hip_bfloat162 value);
#endif
#undef WARPWAVE_BOTH
