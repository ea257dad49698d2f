// SPDX-License-Identifier: MIT
#include "tensor_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

// Lanes that a register of the CPU holds: the loops over k keep all that they add up in registers.
#ifdef __AVX512F__
constexpr int kPart = 16;
#else
constexpr int kPart = 8;
#endif

template <class T, int kCount>
using Part = T __attribute__((ext_vector_type(kCount)));

template <class V, class T>
V part_of(const T* from) {
    V part;
    std::memcpy(&part, from, sizeof part);
    return part;
}

/// Four numbers, again and again.
template <class V, class T, size_t... kLane>
V repeated(const T* from, std::index_sequence<kLane...>) {
    const auto four = part_of<Part<T, 4>>(from);
    return __builtin_shufflevector(four, four, static_cast<int>(kLane % 4)...);
}

/// The largest exponents of the products of each accumulator.
void largest_exponents(const Rows& a, const Columns& b, int from, int count, i16v largest[4]) {
    constexpr int kWide = 2 * kPart;
    using V = Part<i16, kWide>;
    constexpr auto kAll = std::make_index_sequence<kWide>();
    i16 all[4][kLanes];
    for (int first = 0; first < kLanes; first += kWide) {
        V most[4] = {V(kNothing), V(kNothing), V(kNothing), V(kNothing)};
        for (int k = from; k < from + count; ++k) {
            const auto low = part_of<V>(reinterpret_cast<const i16*>(&a.exponent[k][0]) + first);
            const auto high = part_of<V>(reinterpret_cast<const i16*>(&a.exponent[k][1]) + first);
            const V even = repeated<V>(&b.exponent[k][0], kAll), odd = repeated<V>(&b.exponent[k][4], kAll);
            most[0] = __builtin_elementwise_max(most[0], static_cast<V>(low + even));
            most[1] = __builtin_elementwise_max(most[1], static_cast<V>(low + odd));
            most[2] = __builtin_elementwise_max(most[2], static_cast<V>(high + even));
            most[3] = __builtin_elementwise_max(most[3], static_cast<V>(high + odd));
        }
        for (int i = 0; i < 4; ++i) std::memcpy(all[i] + first, &most[i], sizeof most[i]);
    }
    std::memcpy(largest, all, sizeof all);
}

/// The products, times `scale`, cut towards zero and added to `sums`, for each accumulator: those of even k, and of odd ones.
void add_products(
    const Rows& a, const Columns& b, const f32v scale[4], int from, int count, i32v even_sums[4], i32v odd_sums[4]) {
    using F = Part<f32, kPart>;
    using I = Part<i32, kPart>;
    constexpr auto kAll = std::make_index_sequence<kPart>();
    const auto lanes = [](const auto& vector, int first) { return reinterpret_cast<const f32*>(&vector) + first; };
    for (int upper = 0; upper < 2; ++upper)
        for (int first = 0; first < kLanes; first += kPart) {
            const auto scale0 = part_of<F>(lanes(scale[2 * upper], first));
            const auto scale1 = part_of<F>(lanes(scale[2 * upper + 1], first));
            I sum[2][2] = {};  // by k, then by column
            for (int k = from; k + 1 < from + count; k += 2)
                for (int odd = 0; odd < 2; ++odd) {
                    const auto row = part_of<F>(lanes(a.value[k + odd][upper], first));
                    const F b0 = repeated<F>(&b.value[k + odd][0], kAll), b1 = repeated<F>(&b.value[k + odd][4], kAll);
                    sum[odd][0] += convert<I>(row * b0 * scale0);
                    sum[odd][1] += convert<I>(row * b1 * scale1);
                }
            for (int i = 0; i < 2; ++i) {
                const auto add = [&](i32v& to, const I& part) {
                    i32* const place = reinterpret_cast<i32*>(&to) + first;
                    const I all = part_of<I>(place) + part;
                    std::memcpy(place, &all, sizeof all);
                };
                add(even_sums[2 * upper + i], sum[0][i]);
                add(odd_sums[2 * upper + i], sum[1][i]);
            }
        }
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
    i16v largest[4];
    largest_exponents(a, b, from, count, largest);
    i32v most[4];
    i32v usual = i32v(-1), special = i32v(0);
    for (int i = 0; i < 4; ++i) {
        const f32v c = accumulator[i];
        i32v c_exponent = exponent_of(c);
        // An f16 that is subnormal has the least exponent of its format.
        if (rule.result == Result::F16)
            c_exponent = choose<i32v>(c_exponent < -1000, c_exponent, __builtin_elementwise_max(c_exponent, i32v(-14)));
        most[i] = __builtin_elementwise_max(convert<i32v>(largest[i]), c_exponent);
        const i32v nothing = most[i] < -1000;
        usual &= nothing | ((most[i] >= kLeast) & (most[i] <= kMost));
        special |= bits<i32v>((bits<u32v>(c) & 0x7f800000u) == 0x7f800000u);
        most[i] = choose<i32v>(nothing, i32v(0), __builtin_elementwise_max(most[i], i32v(kFloor)));
    }
    f32v result[4];
    if (to_mask(usual) == kAllLanes) {
        // Two sums: eight addends of 27 bits fit into 31.
        f32v scale[4];
        i32v even[4], odd[4];
        for (int i = 0; i < 4; ++i) {
            scale[i] = power_of_two(rule.fraction - most[i]);
            even[i] = convert<i32v>(accumulator[i] * scale[i]);
            odd[i] = i32v(0);
        }
        add_products(a, b, scale, from, count, even, odd);
        for (int i = 0; i < 4; ++i) {
            if (rule.result == Result::F32Short) {
                // 33 addends of 15 bits: f32 holds their sum.
                const f32v sum = convert<f32v>(even[i] + odd[i]);
                result[i] = bits<f32v>(bits<u32v>(sum) & ~0x3ffu) * power_of_two(most[i] - rule.fraction);
            } else {
                const f64v sum = convert<f64v>(even[i]) + convert<f64v>(odd[i]);
                result[i] = rounded(sum * wide_power_of_two(most[i] - rule.fraction), rule.result);
            }
        }
    } else {
        for (int i = 0; i < 4; ++i) {
            const f64v sum = slow_sum(a, b, accumulator[i], i, most[i], rule, from, count);
            result[i] = rounded(sum * wide_power_of_two(most[i] - rule.fraction), rule.result);
        }
    }
    const bool any_special = a.special || b.special || to_mask(special) != 0;
    for (int i = 0; i < 4; ++i) {
        // Zero is +0, also what is too small for the result.
        result[i] += 0.0f;
        accumulator[i] = any_special ? with_special(a, b, accumulator[i], i, result[i], from, count) : result[i];
    }
}

}  // namespace emu::ptx
