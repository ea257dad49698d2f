// SPDX-License-Identifier: MIT
#include "tensor_core.h"

#include <algorithm>
#include <cmath>

#include "ops/half.h"

namespace emu::ptx {
namespace {

constexpr i32 kFloor = -133;
// Within these exponents f32 holds every product, and its scaling, exactly.
constexpr i32 kLeast = -100, kMost = 120;

struct Layout {
    int fraction, exponent_bits, bias;
};

constexpr Layout layout(Format format) {
    switch (format) {
        case Format::F16: return {10, 5, 15};
        case Format::BF16: return {7, 8, 127};
        case Format::TF32: return {10, 8, 127};
        case Format::E4M3: return {3, 4, 7};
        default: return {2, 5, 15};
    }
}

Number decoded(Format format, u32 word) {
    const Layout l = layout(format);
    if (format == Format::TF32) word >>= 13;
    const bool negative = word >> (l.exponent_bits + l.fraction) & 1;
    const u32 field = word >> l.fraction & ((1u << l.exponent_bits) - 1), fraction = word & ((1u << l.fraction) - 1);
    const bool top = field == (1u << l.exponent_bits) - 1;
    const bool is_nan = format == Format::E4M3 ? top && fraction == 7 : top && fraction;
    const bool is_infinite = format != Format::E4M3 && top && !fraction;
    Number result;
    if (is_nan || is_infinite) {
        result = {is_nan ? NAN : negative ? -HUGE_VALF : HUGE_VALF, kNothing, true};
        return result;
    }
    const i32 exponent = static_cast<i32>(field ? field : 1) - l.bias;
    const u32 magnitude = fraction | (field ? 1u << l.fraction : 0);
    result.value = static_cast<f32>(std::ldexp(static_cast<f64>(magnitude), exponent - l.fraction));
    if (negative) result.value = -result.value;
    if (magnitude) result.exponent = static_cast<i16>(exponent);
    return result;
}

const Number* table(Format format) {
    static const auto* const tables = [] {
        auto* const all = new Number[2][256];
        for (u32 code = 0; code < 256; ++code) {
            all[0][code] = decoded(Format::E4M3, code);
            all[1][code] = decoded(Format::E5M2, code);
        }
        return all;
    }();
    return tables[format == Format::E5M2];
}

i32v exponent_of(f32v value) {
    const u32v field = (bits<u32v>(value) >> 23) & 0xffu;
    const i32v exponent = bits<i32v>(__builtin_elementwise_max(field, u32v(1u))) - 127;
    return choose<i32v>(bits<i32v>((bits<u32v>(value) & 0x7fffffffu) == 0u), i32v(kNothing), exponent);
}

using f32x4 = f32 __attribute__((ext_vector_type(4)));
using i16x4 = i16 __attribute__((ext_vector_type(4)));

template <class V, class Part>
V columns(const Part& part) {
    return __builtin_shufflevector(
        part, part, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
}
f32v values_at(const Columns& b, int k, int odd) {
    f32x4 part;
    std::memcpy(&part, &b.value[k][4 * odd], sizeof part);
    return columns<f32v>(part);
}
i16v exponents_at(const Columns& b, int k, int odd) {
    i16x4 part;
    std::memcpy(&part, &b.exponent[k][4 * odd], sizeof part);
    return columns<i16v>(part);
}

template <int kFraction>
f32v towards_zero(f64v sum) {
    constexpr u64 kKept = ~((u64{1} << (52 - kFraction)) - 1);
    const i64v small = __builtin_elementwise_abs(sum) < 0x1p-126;
    const f64v cut = bits<f64v>(bits<u64v>(sum) & kKept);
    if (to_mask(small))
        return convert<f32v>(choose<f64v>(convert<i32v>(small), rounded_to<kFraction, -126>(sum, Round::Zero), cut));
    return convert<f32v>(cut);
}

f32v rounded(f64v sum, Result result) {
    if (result == Result::F16) return from_f16(to_f16(sum));
    return result == Result::F32Short ? towards_zero<13>(sum) : towards_zero<23>(sum);
}

f32v power_of_two(i32v exponent) { return bits<f32v>(bits<u32v>((exponent + 127) << 23)); }
f64v wide_power_of_two(i32v exponent) { return bits<f64v>(bits<u64v>((convert<i64v>(exponent) + 1023) << 52)); }

/// Any exponents: in f64, which holds the sum of what is left of 17 addends below the largest exponent.
f64v slow_sum(const Rows& a, const Columns& b, f32v c, int i, i32v most, const Rule& rule, int from, int count) {
    const f64v scale = wide_power_of_two(rule.fraction - most);
    const auto cut = [&](f64v value) { return __builtin_elementwise_trunc(value * scale); };
    f64v sum = cut(convert<f64v>(c));
    for (int k = from; k < from + count; ++k)
        sum += cut(convert<f64v>(a.value[k][i / 2]) * convert<f64v>(values_at(b, k, i % 2)));
    return sum;
}

/// NaN of an invalid or unknown sum, infinities; other lanes keep `result`.
f32v with_special(const Rows& a, const Columns& b, f32v c, int i, f32v result, int from, int count) {
    f64v total = convert<f64v>(c);
    i64v special = total - total != 0.0;
    for (int k = from; k < from + count; ++k) {
        const f64v product = convert<f64v>(a.value[k][i / 2]) * convert<f64v>(values_at(b, k, i % 2));
        special |= product - product != 0.0;
        total += product;
    }
    const i32v nan = convert<i32v>(bits<i64v>(total != total));
    const f32v value = choose<f32v>(nan, bits<f32v>(u32v(0x7fffffffu)), convert<f32v>(total));
    return choose<f32v>(convert<i32v>(special), value, result);
}

}  // namespace

Number number_of(Format format, u32 word) {
    if (format == Format::E4M3 || format == Format::E5M2) return table(format)[word & 0xff];
    return decoded(format, word);
}

void Rows::spread(const f32 numbers[][16], const i16 exponents[][16], int count) {
    using f32x8 = f32 __attribute__((ext_vector_type(8)));
    using i16x8 = i16 __attribute__((ext_vector_type(8)));
    for (int k = 0; k < count; ++k)
        for (int upper = 0; upper < 2; ++upper) {
            f32x8 v;
            i16x8 e;
            std::memcpy(&v, &numbers[k][8 * upper], sizeof v);
            std::memcpy(&e, &exponents[k][8 * upper], sizeof e);
            value[k][upper] = __builtin_shufflevector(
                v, v, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
            exponent[k][upper] = __builtin_shufflevector(
                e, e, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
        }
}

void multiply(const Rows& a, const Columns& b, f32v accumulator[4], const Rule& rule, int from, int count) {
    for (int i = 0; i < 4; ++i) {
        const f32v c = accumulator[i];
        i16v largest = i16v(kNothing);
        for (int k = from; k < from + count; ++k)
            largest =
                __builtin_elementwise_max(largest, static_cast<i16v>(a.exponent[k][i / 2] + exponents_at(b, k, i % 2)));
        i32v c_exponent = exponent_of(c);
        // An f16 that is subnormal has the least exponent of its format.
        if (rule.result == Result::F16)
            c_exponent = choose<i32v>(c_exponent < -1000, c_exponent, __builtin_elementwise_max(c_exponent, i32v(-14)));
        i32v most = __builtin_elementwise_max(convert<i32v>(largest), c_exponent);
        const i32v nothing = most < -1000;
        const bool usual = to_mask(nothing | ((most >= kLeast) & (most <= kMost))) == kAllLanes;
        most = choose<i32v>(nothing, i32v(0), __builtin_elementwise_max(most, i32v(kFloor)));
        f32v result;
        if (usual) {
            const f32v scale = power_of_two(rule.fraction - most);
            // Two sums: eight addends of 27 bits fit into 31.
            i32v even = convert<i32v>(c * scale), odd = i32v(0);
            for (int k = from; k + 1 < from + count; k += 2) {
                even += convert<i32v>(a.value[k][i / 2] * values_at(b, k, i % 2) * scale);
                odd += convert<i32v>(a.value[k + 1][i / 2] * values_at(b, k + 1, i % 2) * scale);
            }
            if (rule.result == Result::F32Short) {
                // 33 addends of 15 bits: f32 holds their sum.
                const f32v sum = convert<f32v>(even + odd);
                result = bits<f32v>(bits<u32v>(sum) & ~0x3ffu) * power_of_two(most - rule.fraction);
            } else {
                const f64v sum = convert<f64v>(even) + convert<f64v>(odd);
                result = rounded(sum * wide_power_of_two(most - rule.fraction), rule.result);
            }
        } else {
            const f64v sum = slow_sum(a, b, c, i, most, rule, from, count);
            result = rounded(sum * wide_power_of_two(most - rule.fraction), rule.result);
        }
        // Zero is +0, also what is too small for the result.
        result += 0.0f;
        const bool c_special = to_mask(bits<i32v>((bits<u32v>(c) & 0x7f800000u) == 0x7f800000u)) != 0;
        if (a.special || b.special || c_special) result = with_special(a, b, c, i, result, from, count);
        accumulator[i] = result;
    }
}

}  // namespace emu::ptx
