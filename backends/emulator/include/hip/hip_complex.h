// SPDX-License-Identifier: MIT
// Complex numbers as pairs, after the public reference of HIP's complex API. For compilers without ROCm's own header.
#pragma once

#include <hip/hip_vector_types.h>

#include <cmath>

#define WARPWAVE_COMPLEX(TYPE, REAL, PART, SUFFIX, FMA, SQRT)                                             \
    __host__ __device__ static inline REAL hipCreal##SUFFIX(TYPE z) { return z.x; }                       \
    __host__ __device__ static inline REAL hipCimag##SUFFIX(TYPE z) { return z.y; }                       \
    __host__ __device__ static inline TYPE make_##PART(REAL a, REAL b) {                                  \
        TYPE z;                                                                                           \
        z.x = a;                                                                                          \
        z.y = b;                                                                                          \
        return z;                                                                                         \
    }                                                                                                     \
    __host__ __device__ static inline TYPE hipConj##SUFFIX(TYPE z) { return make_##PART(z.x, -z.y); }     \
    __host__ __device__ static inline REAL hipCsqabs##SUFFIX(TYPE z) { return z.x * z.x + z.y * z.y; }    \
    __host__ __device__ static inline REAL hipCabs##SUFFIX(TYPE z) { return SQRT(hipCsqabs##SUFFIX(z)); } \
    __host__ __device__ static inline TYPE hipCadd##SUFFIX(TYPE p, TYPE q) {                              \
        return make_##PART(p.x + q.x, p.y + q.y);                                                         \
    }                                                                                                     \
    __host__ __device__ static inline TYPE hipCsub##SUFFIX(TYPE p, TYPE q) {                              \
        return make_##PART(p.x - q.x, p.y - q.y);                                                         \
    }                                                                                                     \
    __host__ __device__ static inline TYPE hipCmul##SUFFIX(TYPE p, TYPE q) {                              \
        return make_##PART(p.x * q.x - p.y * q.y, p.y * q.x + p.x * q.y);                                 \
    }                                                                                                     \
    __host__ __device__ static inline TYPE hipCdiv##SUFFIX(TYPE p, TYPE q) {                              \
        const REAL scale = hipCsqabs##SUFFIX(q);                                                          \
        return make_##PART((p.x * q.x + p.y * q.y) / scale, (p.y * q.x - p.x * q.y) / scale);             \
    }                                                                                                     \
    __host__ __device__ static inline TYPE hipCfma##SUFFIX(TYPE p, TYPE q, TYPE r) {                      \
        return make_##PART(FMA(-p.y, q.y, FMA(p.x, q.x, r.x)), FMA(p.x, q.y, FMA(p.y, q.x, r.y)));        \
    }

using hipFloatComplex = float2;
using hipDoubleComplex = double2;
using hipComplex = hipFloatComplex;

WARPWAVE_COMPLEX(hipFloatComplex, float, hipFloatComplex, f, fmaf, sqrtf)
// The names for double have no suffix.
WARPWAVE_COMPLEX(hipDoubleComplex, double, hipDoubleComplex, , fma, sqrt)
#undef WARPWAVE_COMPLEX

__host__ __device__ static inline hipComplex make_hipComplex(float a, float b) { return make_hipFloatComplex(a, b); }
__host__ __device__ static inline hipFloatComplex hipComplexDoubleToFloat(hipDoubleComplex z) {
    return make_hipFloatComplex(static_cast<float>(z.x), static_cast<float>(z.y));
}
__host__ __device__ static inline hipDoubleComplex hipComplexFloatToDouble(hipFloatComplex z) {
    return make_hipDoubleComplex(z.x, z.y);
}
