// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// The device maths library in double, float and half, against the host's.
#include "program.h"

constexpr int kCount = 256;

// clang-format off: it cannot decide about a list of macro calls
#define UNARY(X)                                                                                                          \
    X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(exp) X(exp2) X(expm1)    \
    X(log) X(log2) X(log10) X(log1p) X(sqrt) X(cbrt) X(erf) X(erfc) X(tgamma) X(lgamma) X(floor) X(ceil) X(trunc) X(round)   \
    X(rint) X(fabs) X(logb)
// clang-format on
#define BINARY(X) X(pow) X(atan2) X(hypot) X(fmod) X(remainder) X(fmin) X(fmax) X(copysign) X(fdim) X(nextafter)

constexpr const char* kNames[] = {
#define NAME(f) #f,
    UNARY(NAME) BINARY(NAME)
#undef NAME
};
constexpr int kFunctions = sizeof kNames / sizeof *kNames;

/// Brings x (in 0 .. 1) into the domain where function `name` is defined and well conditioned.
template <class T>
T argument(const char* name, double x) {
    const std::string f = name;
    if (f == "asin" || f == "acos" || f == "atanh") return static_cast<T>(1.9 * x - 0.95);
    if (f == "acosh") return static_cast<T>(1.1 + 20 * x);
    if (f == "log" || f == "log2" || f == "log10" || f == "sqrt" || f == "pow" || f == "logb")
        return static_cast<T>(0.05 + 20 * x);
    if (f == "log1p") return static_cast<T>(20 * x);
    if (f == "tgamma" || f == "lgamma") return static_cast<T>(2.5 + 5 * x);
    if (f == "exp" || f == "expm1" || f == "sinh" || f == "cosh" || f == "exp2") return static_cast<T>(10 * x - 5);
    if (f == "erfc") return static_cast<T>(3 * x - 1);
    return static_cast<T>(40 * x - 20);
}

template <class T>
__global__ void evaluate(const T* x, const T* y, T* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    int row = 0;
#define CALL(f)                                     \
    out[row * kCount + i] = f(x[row * kCount + i]); \
    ++row;
    UNARY(CALL)
#undef CALL
#define CALL(f)                                           \
    out[row * kCount + i] = f(x[row * kCount + i], y[i]); \
    ++row;
    BINARY(CALL)
#undef CALL
}

template <class T>
double host(int row, T x, T y) {
    int at = 0;
    const double a = static_cast<double>(x), b = static_cast<double>(y);
#define CALL(f) \
    if (row == at++) return std::f(a);
    UNARY(CALL)
#undef CALL
    if (row == at + 9) return static_cast<double>(std::nextafter(x, y));
#define CALL(f) \
    if (row == at++) return std::f(a, b);
    BINARY(CALL)
#undef CALL
    return 0;
}

template <class T>
void judge(Verdict& verdict, double tolerance) {
    const std::vector<double> spread = uniform_numbers(kFunctions * kCount, 0, 1);
    std::vector<T> x(spread.size()), y = converted<T>(uniform_numbers(kCount, -3, 3, 2));
    for (size_t i = 0; i < x.size(); ++i) x[i] = argument<T>(kNames[i / kCount], spread[i]);
    Buffer<T> from(x), other(y), out(x.size());
    evaluate<T><<<4, kCount / 4>>>(from.data(), other.data(), out.data());
    const std::vector<T> got = out.read(verdict);
    for (int row = 0; row < kFunctions; ++row) {
        std::vector<T> part(got.begin() + row * kCount, got.begin() + (row + 1) * kCount);
        std::vector<double> wanted(kCount);
        for (int i = 0; i < kCount; ++i) wanted[i] = host<T>(row, x[row * kCount + i], y[i]);
        verdict.close(part, wanted, tolerance, tolerance * 1e-3, kNames[row]);
    }
}

__global__ void fast(const float* x, float* out) {
    const int i = static_cast<int>(threadIdx.x);
    const float v = x[i];
    out[i] = __expf(v);
    out[64 + i] = __logf(v);
    out[128 + i] = __sinf(v);
    out[192 + i] = __cosf(v);
    out[256 + i] = __frcp_rn(v);
    out[320 + i] = __fsqrt_rn(v);
    out[384 + i] = __fdividef(1.0f, v);
    out[448 + i] = rsqrtf(v);
    out[512 + i] = __powf(v, 1.5f);
    float sine, cosine;
    sincosf(v, &sine, &cosine);
    out[576 + i] = sine + cosine;
    int exponent;
    out[640 + i] = frexpf(v, &exponent) + static_cast<float>(exponent);
    out[704 + i] = ldexpf(v, 5) + scalbnf(v, -3);
    float whole;
    out[768 + i] = modff(v, &whole) + 2 * whole;
    out[832 + i] =
        fmaf(v, v, v) + static_cast<float>(ilogbf(v)) + static_cast<float>(isnan(v)) + static_cast<float>(signbit(v));
    out[896 + i] = sinpif(v) + cospif(v) + normcdff(v) + j0f(v);
}

void judge_fast(Verdict& verdict) {
    const std::vector<float> x = converted<float>(uniform_numbers(64, 0.1, 3));
    Buffer<float> from(x), out(960);
    fast<<<1, 64>>>(from.data(), out.data());
    std::vector<double> wanted(960);
    for (int i = 0; i < 64; ++i) {
        const double v = static_cast<double>(x[i]);
        int exponent;
        double whole;
        const double mantissa = std::frexp(v, &exponent), part = std::modf(v, &whole), pi = 3.14159265358979323846;
        const double values[] = {
            std::exp(v),
            std::log(v),
            std::sin(v),
            std::cos(v),
            1 / v,
            std::sqrt(v),
            1 / v,
            1 / std::sqrt(v),
            std::pow(v, 1.5),
            std::sin(v) + std::cos(v),
            mantissa + exponent,
            v * 32 + v / 8,
            part + 2 * whole,
            v * v + v + std::ilogb(v),
            std::sin(pi * v) + std::cos(pi * v) + 0.5 * std::erfc(-v / std::sqrt(2.0)) + ::j0(v)};
        for (int row = 0; row < 15; ++row) wanted[row * 64 + i] = values[row];
    }
    verdict.close(out.read(verdict), wanted, 4e-6, 4e-6, "fast maths");
}

PROGRAM {
    Verdict verdict;
    judge<double>(verdict, 1e-14);
    judge<float>(verdict, 4e-6);
    judge_fast(verdict);
    return verdict.leave(message, room);
}
