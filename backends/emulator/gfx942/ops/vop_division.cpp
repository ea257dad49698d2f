// SPDX-License-Identifier: MIT
// The steps of IEEE division: v_div_scale brings operands into a range where Newton's method neither overflows nor
// loses bits, v_div_fmas is its last step and takes the scaling back, v_div_fixup puts in what the method cannot give.
//
// The manual's pseudo-code for scaling cannot be meant literally: it multiplies a huge denominator by 2^64 (which
// overflows) and always multiplies back by 2^32. Here the denominator shrinks where the quotient is tiny and grows
// where it is huge, and v_div_fmas undoes the very factor, whose direction the scaled quotient's size tells. The
// compiler's division sequences then give correctly rounded quotients everywhere.
#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

/// What differs between f32 and f64.
template <class F> struct Limits;
template <> struct Limits<f32v> {
    static constexpr int kMantissa = 23, kExponentMask = 0xff;
    static constexpr int kHuge = 96, kTiny = 23, kUnderflow = -150, kOverflow = 128;
    static constexpr f32 kScale = 0x1p64f, kUnscale = 0x1p-64f, kNormal = 0x1p-126f, kLargeDenominator = 0x1p126f;
    static constexpr u32 kNan = 0x7fc00000u, kInvalid = kInvalid32, kSign = 1u << 31;
    static f32v load_source(const u32* words) { return load<f32v>(words); }
    static void store_result(u32* words, f32v value) { store(words, value); }
    static unsigned rounding(const Wave& w) { return w.round32(); }
};
template <> struct Limits<f64v> {
    static constexpr int kMantissa = 52, kExponentMask = 0x7ff;
    static constexpr int kHuge = 768, kTiny = 53, kUnderflow = -1075, kOverflow = 1024;
    static constexpr f64 kScale = 0x1p128, kUnscale = 0x1p-128, kNormal = 0x1p-1022, kLargeDenominator = 0x1p1022;
    static constexpr u64 kNan = u64{0x7ff8} << 48, kInvalid = u64{0xfff8} << 48, kSign = u64{1} << 63;
    static f64v load_source(const u32* words) { return load_f64(words); }
    static void store_result(u32* words, f64v value) { store_f64(words, value); }
    static unsigned rounding(const Wave& w) { return w.round64(); }
};

template <class F>
auto exponent_field(F value) {
    using L = Limits<F>;
    return std::bit_cast<typename Element<F>::Truth>((bits_of(value) >> L::kMantissa) & L::kExponentMask);
}

// v_div_scale: source 0 is the numerator or the denominator again, to be scaled as the pair (2 / 1) needs.
template <class F>
void div_scale(Lanes& l) {
    using L = Limits<F>;
    using Truth = Element<F>::Truth;
    const F value = L::load_source(l.s[0]), denominator = L::load_source(l.s[1]), numerator = L::load_source(l.s[2]);
    const F up = value * L::kScale, down = value * L::kUnscale;
    const F size = magnitude(denominator);

    const Truth none = (numerator == 0) | (denominator == 0);
    const Truth huge = exponent_field(numerator) - exponent_field(denominator) >= L::kHuge;
    const Truth denormal = size < L::kNormal;
    const Truth large = (size > L::kLargeDenominator) & (exponent_field(denominator) != L::kExponentMask);
    const Truth vanishing =
        (magnitude(numerator / denominator) < L::kNormal) & (exponent_field(denominator) != L::kExponentMask);
    const Truth tiny = exponent_field(numerator) <= L::kTiny;
    const Truth is_denominator = value == denominator, is_numerator = value == numerator;

    // The first case that applies decides, so the last is written first.
    F result = choose(tiny, up, value);
    result = choose(vanishing, choose(is_numerator, up, value), result);
    result = choose(large, down, result);
    result = choose(large & vanishing, choose(is_denominator, down, value), result);
    result = choose(denormal, up, result);
    result = choose(huge, choose(is_denominator, up, value), result);
    result = choose(none, floats_of(typename Element<F>::Bits(L::kNan)), result);
    L::store_result(l.d, result);
    l.mask_out = to_mask(~none & (huge | (vanishing & ~denormal)));
}

// v_div_fmas reads VCC, one bit a lane: was this quotient scaled?
void v_div_fmas_f32(Lanes& l) {
    const f32v a = load<f32v>(l.s[0]), b = load<f32v>(l.s[1]), c = load<f32v>(l.s[2]);
    f32v result = __builtin_elementwise_fma(a, b, c);
    const u64 scaled = l.wave->vcc();
    if (scaled & l.exec) {
        // Rounded only once, after the scaling: the sum in f64 has its last bit set if it is inexact, which the
        // rounding error (Knuth's two-sum; the product is exact) tells.
        const f64v product = __builtin_convertvector(a, f64v) * __builtin_convertvector(b, f64v);
        const f64v addend = __builtin_convertvector(c, f64v);
        const f64v sum = product + addend;
        const f64v shadow = sum - addend;
        const f64v error = (addend - (sum - shadow)) + (product - shadow);
        const i64v bits = std::bit_cast<i64v>(sum);
        const i64v inexact = (error != 0.0) & (error == error) & ((bits & 1) == 0);
        const i64v inwards = (error > 0.0) ^ (sum > 0.0);
        const i64v odd = bits + (inexact & (1 - (inwards & 2)));
        const f64v factor = choose(magnitude(addend) >= 2.0, f64v(0x1p64), f64v(0x1p-64));
        const f32v rescaled = __builtin_convertvector(std::bit_cast<f64v>(odd) * factor, f32v);
        alignas(64) u32 mask[kLanes];
        spread(scaled, mask);
        result = choose(load<i32v>(mask), rescaled, result);
    }
    store(l.d, result);
}

void v_div_fmas_f64(Lanes& l) {
    const f64v a = load_f64(l.s[0]), b = load_f64(l.s[1]), c = load_f64(l.s[2]);
    const f64v sum = __builtin_elementwise_fma(a, b, c);
    store_f64(l.d, sum);
    const u64 scaled = l.wave->vcc();
    if (!(scaled & l.exec)) return;
    // What the sum lacks; a * b is small against c, so c - sum is exact.
    const f64v error = __builtin_elementwise_fma(a, b, c - sum);
    const f64v factor = choose(magnitude(c) >= 2.0, f64v(0x1p128), f64v(0x1p-128));
    f64v result = sum * factor;
    // Where a denormal quotient was half-way between two numbers only because the sum had been rounded, the error says
    // which of the two is nearer.
    const f64v rest = sum - result / factor;
    const i64v tie = (magnitude(result) <= 0x1p-1022) & (magnitude(rest) == 0x1p-947);
    const i64v further = ((error > 0.0) & (rest > 0.0)) | ((error < 0.0) & (rest < 0.0));
    const f64v step = choose(rest > 0.0, f64v(0x1p-1074), f64v(-0x1p-1074));
    result = choose(tie & further, result + step, result);
    for (int lane = 0; lane < kLanes; ++lane)
        if (scaled >> lane & 1) set_lane64(l.d, lane, as_u64(result[lane]));
}

// v_div_fixup: source 0 is the quotient, 1 the denominator, 2 the numerator.
template <class F>
void div_fixup(Lanes& l) {
    using L = Limits<F>;
    using Bits = Element<F>::Bits;
    const F quotient = L::load_source(l.s[0]), denominator = L::load_source(l.s[1]), numerator = L::load_source(l.s[2]);
    const Bits sign = (bits_of(denominator) ^ bits_of(numerator)) & L::kSign;
    const F infinity = floats_of(Bits(L::kExponentMask) << L::kMantissa);
    const auto zero_below = denominator == 0, zero_above = numerator == 0;
    const auto infinite_below = magnitude(denominator) == infinity, infinite_above = magnitude(numerator) == infinity;
    // Where Newton's method leaves its range, the exponents alone decide. (The manual has no such overflow case, only
    // one for a denominator that is infinite or NaN, which cannot be reached.)
    const auto exponent = exponent_field(numerator) - exponent_field(denominator);
    const auto underflow = exponent<L::kUnderflow, overflow = exponent> L::kOverflow;

    // Rounded in MODE's direction: the smallest number instead of 0, or the largest instead of infinity.
    const unsigned rounding = L::rounding(*l.wave);
    const Bits is_negative = sign >> (L::kMantissa + (L::kExponentMask == 0xff ? 8 : 11));
    const Bits least = rounding == kUp ? 1u - is_negative : rounding == kDown ? is_negative : Bits(0u);
    const Bits short_of_infinity = rounding == kUp     ? is_negative
                                   : rounding == kDown ? 1u - is_negative
                                                       : Bits(rounding == kTowardZero ? 1u : 0u);

    Bits result = bits_of(magnitude(quotient));
    result = choose(underflow, least, result);
    result = choose(overflow, bits_of(infinity) - short_of_infinity, result);
    result = choose(infinite_below | zero_above, Bits(0u), result);
    result = choose(zero_below | infinite_above, bits_of(infinity), result);
    result |= sign;
    result = choose((zero_below & zero_above) | (infinite_below & infinite_above), Bits(L::kInvalid), result);
    result = choose(denominator != denominator, bits_of(quiet(denominator)), result);
    result = choose(numerator != numerator, bits_of(quiet(numerator)), result);
    L::store_result(l.d, floats_of(result));
}

// The same for f16, where the method needs no scaling.
void v_div_fixup_f16(Lanes& l) {
    const u32v quotient = load<u32v>(l.s[0]), denominator = load<u32v>(l.s[1]), numerator = load<u32v>(l.s[2]);
    const u32v below = denominator & 0x7fffu, above = numerator & 0x7fffu;
    u32v result = quotient & 0x7fffu;
    result = choose((below == 0x7c00u) | (above == 0u), u32v(0u), result);
    result = choose((below == 0u) | (above == 0x7c00u), u32v(0x7c00u), result);
    result |= (denominator ^ numerator) & 0x8000u;
    result = choose(((below | above) == 0u) | ((below == 0x7c00u) & (above == 0x7c00u)), u32v(0xfe00u), result);
    result = choose(below > 0x7c00u, (denominator & 0xffffu) | 0x200u, result);
    result = choose(above > 0x7c00u, (numerator & 0xffffu) | 0x200u, result);
    store(l.d, result);
}

constexpr Row kRows[] = {
    {"v_div_fixup_f32", Format::Vop3, 478, "f32=f32,f32,f32", div_fixup<f32v>, nullptr, 0, 0},
    {"v_div_fixup_f64", Format::Vop3, 479, "f64=f64,f64,f64", div_fixup<f64v>, nullptr, kDoubleRate, 0},
    {"v_div_scale_f32", Format::Vop3, 480, "f32,m=f32,f32,f32", div_scale<f32v>, nullptr, 0, 0},
    {"v_div_scale_f64", Format::Vop3, 481, "f64,m=f64,f64,f64", div_scale<f64v>, nullptr, kDoubleRate, 0},
    {"v_div_fmas_f32", Format::Vop3, 482, "f32=f32,f32,f32", v_div_fmas_f32, nullptr, 0, 0},
    {"v_div_fmas_f64", Format::Vop3, 483, "f64=f64,f64,f64", v_div_fmas_f64, nullptr, kDoubleRate, 0},
    {"v_div_fixup_legacy_f16", Format::Vop3, 495, "f16=f16,f16,f16", v_div_fixup_f16, nullptr, 0, 0},
    {"v_div_fixup_f16", Format::Vop3, 519, "f16p=f16,f16,f16", v_div_fixup_f16, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_division_rows() { return kRows; }

}  // namespace emu
