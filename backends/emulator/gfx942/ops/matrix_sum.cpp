// SPDX-License-Identifier: MIT
#include "matrix_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace emu::matrix {
namespace {

constexpr int kProductBits = 24, kSumBits = 31, kAccumulatorBits = 24;

struct Aligned {
    f64 sum = 0;  // in units of 2^(exponent - 24), an integer
    int exponent = std::numeric_limits<int>::min();
};

// Steps 1 and 2 over every `step`-th product. A product of two f32 is exact in f64.
Aligned align_products(const Factor* a, const Factor* b, int count, int step) {
    Aligned result;
    for (int k = 0; k < count; k += step) result.exponent = std::max(result.exponent, a[k].exponent + b[k].exponent);
    for (int k = 0; k < count; k += step) {
        const f64 product = f64{a[k].value} * f64{b[k].value};
        result.sum += std::trunc(std::ldexp(product, kProductBits - result.exponent));
    }
    return result;
}

int accumulator_exponent(f32 value) {
    const int field = static_cast<int>(as_u32(value) >> 23 & 0xff);
    return std::max(field, 1) - 127;
}

f32 add_group(const Factor* a, const Factor* b, int count, bool split, f32 accumulator) {
    // Infinities and NaN: sums of finite terms cannot overflow f64.
    f64 plain = 0;
    bool up = false, down = false;
    for (int k = 0; k < count; ++k) {
        const f64 product = f64{a[k].value} * f64{b[k].value};
        plain += product;
        up |= product >= 0x1p128;
        down |= product <= -0x1p128;
    }
    plain += f64{accumulator};
    if (std::isnan(plain)) return as_f32(kNan32);
    if (std::isinf(plain)) return static_cast<f32>(plain);
    if (up && down) return as_f32(kNan32);
    if (up || down) return up ? as_f32(0x7f800000u) : as_f32(0xff800000u);

    Aligned products = align_products(a, b, count, split ? 2 : 1);
    if (split) {
        const Aligned odd = align_products(a + 1, b + 1, count - 1, 2);
        const int exponent = std::max(products.exponent, odd.exponent);
        products.sum = std::floor(std::ldexp(products.sum, products.exponent - exponent)) +
                       std::floor(std::ldexp(odd.sum, odd.exponent - exponent));
        products.exponent = exponent;
    }
    const int own = accumulator_exponent(accumulator);
    const int top = std::max(products.exponent, own);
    const f64 sum = std::floor(std::ldexp(products.sum, kSumBits - kProductBits + products.exponent - top));
    f64 added = 0;
    if (!split || own >= top - 25) added = std::floor(std::ldexp(f64{accumulator}, kAccumulatorBits - top));
    return static_cast<f32>(std::ldexp(sum + std::ldexp(added, kSumBits - kAccumulatorBits), top - kSumBits));
}

}  // namespace

f32 exact_sum(const Factor* a, const Factor* b, int count, int group, bool split, f32 accumulator) {
    for (int first = 0; first < count; first += group)
        accumulator = add_group(a + first, b + first, std::min(group, count - first), split, accumulator);
    return accumulator;
}

}  // namespace emu::matrix
