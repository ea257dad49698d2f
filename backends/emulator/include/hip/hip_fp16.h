// SPDX-License-Identifier: MIT
// Half precision, after the public reference of HIP's functions. For compilers without ROCm's own header.
#pragma once

#include <hip/hip_runtime.h>

#include <cmath>
#include <type_traits>

#define WARPWAVE_BOTH __host__ __device__ static inline

struct __half_raw {
    unsigned short x;
};

struct __half {
    union {
        _Float16 data;
        unsigned short __x;
    };

    __half() = default;
    __host__ __device__ __half(_Float16 value) : data(value) {}
    __host__ __device__ __half(__half_raw raw) : __x(raw.x) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, _Float16>>>
    __host__ __device__ __half(T value) : data(static_cast<_Float16>(value)) {}

    __host__ __device__ operator _Float16() const { return data; }
    __host__ __device__ operator __half_raw() const { return {__x}; }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, _Float16>>>
    __host__ __device__ operator T() const {
        return static_cast<T>(data);
    }
    __host__ __device__ __half& operator+=(__half b) { return *this = __half(static_cast<_Float16>(data + b.data)); }
    __host__ __device__ __half& operator-=(__half b) { return *this = __half(static_cast<_Float16>(data - b.data)); }
    __host__ __device__ __half& operator*=(__half b) { return *this = __half(static_cast<_Float16>(data * b.data)); }
    __host__ __device__ __half& operator/=(__half b) { return *this = __half(static_cast<_Float16>(data / b.data)); }
    __host__ __device__ __half operator-() const { return __half(static_cast<_Float16>(-data)); }
    __host__ __device__ __half operator+() const { return *this; }
};
using half = __half;

struct __half2 {
    __half x, y;
    __half2() = default;
    __host__ __device__ __half2(__half a, __half b) : x(a), y(b) {}
    __host__ __device__ explicit __half2(__half a) : x(a), y(a) {}
};
using half2 = __half2;

#define WARPWAVE_OPERATOR(OP, NAME)                                                                                  \
    WARPWAVE_BOTH __half operator OP(__half a, __half b) { return __half(static_cast<_Float16>(a.data OP b.data)); } \
    WARPWAVE_BOTH __half2 operator OP(__half2 a, __half2 b) { return {a.x OP b.x, a.y OP b.y}; }                     \
    WARPWAVE_BOTH __half2& operator OP## = (__half2 & a, __half2 b) { return a = a OP b; }                           \
    WARPWAVE_BOTH __half __h##NAME(__half a, __half b) { return a OP b; }                                            \
    WARPWAVE_BOTH __half2 __h##NAME##2(__half2 a, __half2 b) { return a OP b; }
WARPWAVE_OPERATOR(+, add)
WARPWAVE_OPERATOR(-, sub)
WARPWAVE_OPERATOR(*, mul)
WARPWAVE_OPERATOR(/, div)
#undef WARPWAVE_OPERATOR
WARPWAVE_BOTH __half2 h2div(__half2 a, __half2 b) { return a / b; }
WARPWAVE_BOTH __half2 operator-(__half2 a) { return {-a.x, -a.y}; }

#define WARPWAVE_COMPARISON(OP, NAME)                                                           \
    WARPWAVE_BOTH bool operator OP(__half a, __half b) { return a.data OP b.data; }             \
    WARPWAVE_BOTH bool __h##NAME(__half a, __half b) { return a.data OP b.data; }               \
    WARPWAVE_BOTH bool __hb##NAME##2(__half2 a, __half2 b) { return a.x OP b.x && a.y OP b.y; } \
    WARPWAVE_BOTH __half2 __h##NAME##2(__half2 a, __half2 b) {                                  \
        return {__half(a.x OP b.x ? 1 : 0), __half(a.y OP b.y ? 1 : 0)};                        \
    }
WARPWAVE_COMPARISON(==, eq)
WARPWAVE_COMPARISON(!=, ne)
WARPWAVE_COMPARISON(<, lt)
WARPWAVE_COMPARISON(<=, le)
WARPWAVE_COMPARISON(>, gt)
WARPWAVE_COMPARISON(>=, ge)
#undef WARPWAVE_COMPARISON

// --- conversions --------------------------------------------------------------------------------------------------------

WARPWAVE_BOTH __half __float2half(float value) { return __half(value); }
WARPWAVE_BOTH __half __float2half_rn(float value) { return __half(value); }
WARPWAVE_BOTH __half __double2half(double value) { return __half(value); }
WARPWAVE_BOTH float __half2float(__half value) { return static_cast<float>(value.data); }
WARPWAVE_BOTH __half2 __float2half2_rn(float value) { return __half2(__half(value)); }
WARPWAVE_BOTH __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
WARPWAVE_BOTH __half2 __float22half2_rn(float2 value) { return {__half(value.x), __half(value.y)}; }
WARPWAVE_BOTH float2 __half22float2(__half2 value) { return make_float2(__half2float(value.x), __half2float(value.y)); }
WARPWAVE_BOTH float __low2float(__half2 value) { return __half2float(value.x); }
WARPWAVE_BOTH float __high2float(__half2 value) { return __half2float(value.y); }
WARPWAVE_BOTH __half __low2half(__half2 value) { return value.x; }
WARPWAVE_BOTH __half __high2half(__half2 value) { return value.y; }
WARPWAVE_BOTH __half2 __low2half2(__half2 value) { return {value.x, value.x}; }
WARPWAVE_BOTH __half2 __high2half2(__half2 value) { return {value.y, value.y}; }
WARPWAVE_BOTH __half2 __lowhigh2highlow(__half2 value) { return {value.y, value.x}; }
WARPWAVE_BOTH __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
WARPWAVE_BOTH __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
WARPWAVE_BOTH __half2 __halves2half2(__half a, __half b) { return {a, b}; }
WARPWAVE_BOTH __half2 make_half2(__half a, __half b) { return {a, b}; }
WARPWAVE_BOTH __half2 __half2half2(__half value) { return {value, value}; }
WARPWAVE_BOTH unsigned short __half_as_ushort(__half value) { return value.__x; }
WARPWAVE_BOTH short __half_as_short(__half value) { return static_cast<short>(value.__x); }
WARPWAVE_BOTH __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
WARPWAVE_BOTH __half __short_as_half(short bits) { return __half(__half_raw{static_cast<unsigned short>(bits)}); }

#define WARPWAVE_INTEGER(TYPE, NAME)                                                                               \
    WARPWAVE_BOTH TYPE __half2##NAME##_rn(__half value) { return static_cast<TYPE>(rintf(__half2float(value))); }  \
    WARPWAVE_BOTH TYPE __half2##NAME##_rz(__half value) { return static_cast<TYPE>(truncf(__half2float(value))); } \
    WARPWAVE_BOTH TYPE __half2##NAME##_rd(__half value) { return static_cast<TYPE>(floorf(__half2float(value))); } \
    WARPWAVE_BOTH TYPE __half2##NAME##_ru(__half value) { return static_cast<TYPE>(ceilf(__half2float(value))); }  \
    WARPWAVE_BOTH __half __##NAME##2half_rn(TYPE value) { return __half(value); }
WARPWAVE_INTEGER(int, int)
WARPWAVE_INTEGER(unsigned, uint)
WARPWAVE_INTEGER(short, short)
WARPWAVE_INTEGER(unsigned short, ushort)
WARPWAVE_INTEGER(long long, ll)
WARPWAVE_INTEGER(unsigned long long, ull)
#undef WARPWAVE_INTEGER

// --- mathematics --------------------------------------------------------------------------------------------------------

// Of half precision and of bfloat16.
#define WARPWAVE_MATHEMATICS                              \
    WARPWAVE_MATHS(sqrt, sqrtf(x))                        \
    WARPWAVE_MATHS(rsqrt, 1.0f / sqrtf(x))                \
    WARPWAVE_MATHS(rcp, 1.0f / x)                         \
    WARPWAVE_MATHS(exp, expf(x))                          \
    WARPWAVE_MATHS(exp2, exp2f(x))                        \
    WARPWAVE_MATHS(exp10, exp2f(x * 3.3219280948873623f)) \
    WARPWAVE_MATHS(log, logf(x))                          \
    WARPWAVE_MATHS(log2, log2f(x))                        \
    WARPWAVE_MATHS(log10, log10f(x))                      \
    WARPWAVE_MATHS(sin, sinf(x))                          \
    WARPWAVE_MATHS(cos, cosf(x))                          \
    WARPWAVE_MATHS(ceil, ceilf(x))                        \
    WARPWAVE_MATHS(floor, floorf(x))                      \
    WARPWAVE_MATHS(trunc, truncf(x))                      \
    WARPWAVE_MATHS(rint, rintf(x))

// In single precision, rounded once: within an ulp of half precision, mostly exact.
#define WARPWAVE_MATHS(NAME, EXPRESSION)     \
    WARPWAVE_BOTH __half h##NAME(__half h) { \
        const float x = __half2float(h);     \
        return __half(EXPRESSION);           \
    }                                        \
    WARPWAVE_BOTH __half2 h2##NAME(__half2 value) { return {h##NAME(value.x), h##NAME(value.y)}; }
WARPWAVE_MATHEMATICS
#undef WARPWAVE_MATHS

WARPWAVE_BOTH __half __hneg(__half a) { return -a; }
WARPWAVE_BOTH __half2 __hneg2(__half2 a) { return -a; }
WARPWAVE_BOTH __half __habs(__half a) { return __ushort_as_half(static_cast<unsigned short>(a.__x & 0x7fff)); }
WARPWAVE_BOTH __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
WARPWAVE_BOTH __half __hfma(__half a, __half b, __half c) {
    return __half(
        static_cast<_Float16>(
            fma(static_cast<double>(a.data), static_cast<double>(b.data), static_cast<double>(c.data))));
}
WARPWAVE_BOTH __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
WARPWAVE_BOTH bool __hisnan(__half a) { return a.data != a.data; }
WARPWAVE_BOTH int __hisinf(__half a) { return (a.__x & 0x7fff) == 0x7c00 ? (a.__x >> 15 ? -1 : 1) : 0; }
WARPWAVE_BOTH __half __hmax(__half a, __half b) { return __hisnan(a) || a < b ? b : a; }
WARPWAVE_BOTH __half __hmin(__half a, __half b) { return __hisnan(a) || b < a ? b : a; }
WARPWAVE_BOTH __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
WARPWAVE_BOTH __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

// --- between lanes ------------------------------------------------------------------------------------------------------

#define WARPWAVE_SHUFFLE(NAME, TYPE)                                                                          \
    __device__ static inline __half NAME(__half value, TYPE lane, int width = warpSize) {                     \
        return __ushort_as_half(static_cast<unsigned short>(NAME(static_cast<int>(value.__x), lane, width))); \
    }                                                                                                         \
    __device__ static inline __half2 NAME(__half2 value, TYPE lane, int width = warpSize) {                   \
        return {NAME(value.x, lane, width), NAME(value.y, lane, width)};                                      \
    }
WARPWAVE_SHUFFLE(__shfl, int)
WARPWAVE_SHUFFLE(__shfl_up, unsigned)
WARPWAVE_SHUFFLE(__shfl_down, unsigned)
WARPWAVE_SHUFFLE(__shfl_xor, int)
#undef WARPWAVE_SHUFFLE

#if defined(__gfx942__)
__device__ static inline __half2 unsafeAtomicAdd(__half2* to, __half2 value) {
    typedef _Float16 Two __attribute__((ext_vector_type(2)));
    const Two old = __builtin_amdgcn_flat_atomic_fadd_v2f16(reinterpret_cast<Two*>(to), __builtin_bit_cast(Two, value));
    return __builtin_bit_cast(__half2, old);
}
#else
__device__ __half2 unsafeAtomicAdd(__half2* to, __half2 value);
#endif
#undef WARPWAVE_BOTH
