// SPDX-License-Identifier: MIT
// Reciprocals, roots, exponentials, logarithms, sine and cosine.
//
// The hardware's tables are not public; the ISA guide promises 1 ulp for f32 (0.51 ulp for f16, 2^29 ulp for f64). f32
// and f16 results here are within 0.51 ulp: computed in f64 by polynomials of our own (or by IEEE division and square
// root), never by the host's mathematical library, so that every machine gets the same bits.
//
// f32 functions treat denormal operands as zero and flush denormal results, whatever MODE says; f16 ones keep both.
#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

f32v flush(f32v value) { return choose(magnitude(value) < 0x1p-126f, floats_of(bits_of(value) & 0x80000000u), value); }

f64v widen(f32v value) { return __builtin_convertvector(value, f64v); }
f32v narrow(f64v value) { return __builtin_convertvector(value, f32v); }

template <int kTerms>
f64v polynomial(const f64 (&coefficients)[kTerms], f64v x) {
    f64v sum = coefficients[kTerms - 1];
    for (int i = kTerms - 2; i >= 0; --i) sum = __builtin_elementwise_fma(sum, x, f64v(coefficients[i]));
    return sum;
}

f32v reciprocal(f32v x) { return 1.0f / x; }

// NaN of our choice where an operation is invalid; a NaN operand stays the NaN it is.
f32v or_invalid(i32v invalid, f32v result) { return choose(invalid, floats_of(u32v(kInvalid32)), result); }

f32v square_root(f32v x) { return or_invalid(x < 0.0f, __builtin_elementwise_sqrt(x)); }

f32v reciprocal_root(f32v x) { return or_invalid(x < 0.0f, narrow(1.0 / __builtin_elementwise_sqrt(widen(x)))); }

/// 2^x: the whole part becomes the exponent, the rest (at most 1/2) goes through a polynomial for (2^f - 1) / f,
/// interpolated at Chebyshev points; its relative error is 2^-33.
f32v power_of_two(f32v x) {
    static constexpr f64 kTerms[] = {
        0x1.62e42fefa39efp-1,  0x1.ebfbe045f4d3cp-3,  0x1.c6b08d883dca1p-5,  0x1.3b2a1b7152befp-7,
        0x1.5d879ead06a82p-10, 0x1.443fffc90db59p-13, 0x1.00a581594758ep-16,
    };
    const f32v bounded = __builtin_elementwise_min(__builtin_elementwise_max(x, f32v(-200.0f)), f32v(200.0f));
    const f32v whole = __builtin_elementwise_roundeven(bounded);
    const f64v fraction = widen(bounded - whole);
    const f64v scale = emu::power_of_two(__builtin_convertvector(__builtin_convertvector(whole, i32v), i64v));
    const f64v power = __builtin_elementwise_fma(fraction, polynomial(kTerms, fraction), f64v(1.0));
    return choose(x != x, quiet(x), narrow(power * scale));
}

/// log2(x): the exponent, plus a polynomial for log2(1 + z) / z of the mantissa, taken between sqrt(1/2) and sqrt(2) so
/// that nothing cancels near 1; its relative error is 2^-38.
f32v logarithm(f32v x) {
    static constexpr f64 kTerms[] = {
        0x1.71547652b5270p+0, -0x1.71547651d9376p-1, 0x1.ec709de7df48dp-2, -0x1.7154784e5d08ep-2,
        0x1.2776b48f57946p-2, -0x1.ec6f47f38905dp-3, 0x1.a61c50cd4bc62p-3, -0x1.7186b110dbb40p-3,
        0x1.480da32d9077ap-3, -0x1.23e34ff2dfed7p-3, 0x1.0b872a83448f7p-3, -0x1.140c67e94fcdep-3,
        0x1.0c91c8ec04459p-3, -0x1.16c9192143833p-4,
    };
    constexpr u32 kRootOfHalf = 0x3f3504f3u;
    const u32v above = bits_of(x) - kRootOfHalf;
    const i32v exponent = std::bit_cast<i32v>(above) >> 23;
    const f64v z = widen(floats_of((above & 0x7fffffu) + kRootOfHalf)) - 1.0;
    const f64v sum = __builtin_elementwise_fma(z, polynomial(kTerms, z), __builtin_convertvector(exponent, f64v));
    f32v result = narrow(sum);
    result = choose(x == 0.0f, f32v(-__builtin_inff()), result);
    result = choose(x == __builtin_inff(), x, result);
    result = or_invalid(x < 0.0f, result);
    return choose(x != x, quiet(x), result);
}

// The operand counts revolutions: take off whole ones and quarters (exactly), which leaves at most 1/8 for two power
// series. Beyond 256 revolutions the hardware gives up: sin 0, cos 1. `kQuarter` is 0 for the sine, 1 for the cosine.
template <int kQuarter>
f32v wave_function(f32v x) {
    static constexpr f64 kSine[] = {
        // (-1)^k (2 pi)^(2k+1) / (2k+1)!
        0x1.921fb54442d18p+2, -0x1.4abbce625be53p+5, 0x1.466bc6775aae2p+6, -0x1.32d2cce62bd86p+6,
        0x1.50783487ee782p+5, -0x1.e3074fde8871fp+3, 0x1.e8f434d018d63p+1,
    };
    static constexpr f64 kCosine[] = {
        // (-1)^k (2 pi)^(2k) / (2k)!
        1.0,
        -0x1.3bd3cc9be45dep+4,
        0x1.03c1f081b5ac4p+6,
        -0x1.55d3c7e3cbffap+6,
        0x1.e1f506891babbp+5,
        -0x1.a6d1f2a204a8cp+4,
        0x1.f9d38a3763cc3p+2,
        -0x1.b6e24f44b128fp+0,
    };
    const i32v in_range = magnitude(x) <= 256.0f;
    const f32v safe = choose(in_range, x, f32v(0.0f));
    const f32v part = safe - __builtin_elementwise_roundeven(safe);
    const f32v quarters = __builtin_elementwise_roundeven(part * 4.0f);
    const f64v rest = widen(part - quarters * 0.25f);
    const f64v square = rest * rest;
    const f32v sine = narrow(rest * polynomial(kSine, square));
    const f32v cosine = narrow(polynomial(kCosine, square));
    const i32v quarter = __builtin_convertvector(quarters, i32v) + kQuarter;
    f32v result = choose((quarter & 1) != 0, cosine, sine);
    result = choose((quarter & 2) != 0, -result, result) + 0.0f;  // a zero of the function is +0
    if (kQuarter == 0) result = choose(x == 0.0f, x, result);     // but sin(-0) = -0
    result = or_invalid(magnitude(x) == __builtin_inff(), result);
    return choose(x != x, quiet(x), result);
}

using Function = f32v (*)(f32v);

template <Function kFunction>
void f32_function(Lanes& l) {
    store(l.d, flush(kFunction(flush(load<f32v>(l.s[0])))));
}

template <Function kFunction>
void f16_function(Lanes& l) {
    store(l.d, f32_to_f16(kFunction(f16_to_f32(load<u32v>(l.s[0]))), half_rounding(*l.wave)));
}

// Sine and cosine keep denormals.
template <Function kFunction>
void f32_periodic(Lanes& l) {
    store(l.d, kFunction(load<f32v>(l.s[0])));
}

// The f64 versions are only a start for Newton's method, good to 2^29 ulp. What is exact here is cut to 26 bits after
// the point, so that code which takes the start for the result shows it.
f64v coarse(f64v value) {
    const i64v normal = (magnitude(value) >= 0x1p-1022) & (magnitude(value) < __builtin_inf());
    return choose(normal, floats_of(bits_of(value) & ~((u64{1} << 26) - 1)), value);
}

// Newton's method reaches the nearest number to every reciprocal but those of numbers with nothing but ones after the point
// (Markstein, "IA-64 and Elementary Functions"), and then quotients would be wrong in the last place: there the start is exact.
void v_rcp_f64(Lanes& l) {
    constexpr u64 kFraction = (u64{1} << 52) - 1;
    const f64v x = load_f64(l.s[0]), exact = 1.0 / x;
    store_f64(l.d, choose((bits_of(x) & kFraction) == kFraction, exact, coarse(exact)));
}

f64v square_root64(f64v x) {
    return choose(x < 0.0, floats_of(u64v(u64{0xfff8} << 48)), __builtin_elementwise_sqrt(x));
}

void v_sqrt_f64(Lanes& l) { store_f64(l.d, coarse(square_root64(load_f64(l.s[0])))); }
void v_rsq_f64(Lanes& l) { store_f64(l.d, coarse(1.0 / square_root64(load_f64(l.s[0])))); }

constexpr u32 kSlow = kTranscendental;
constexpr Row kRows[] = {
    {"v_exp_f32", Format::Vop1, 32, "f32=f32", f32_function<power_of_two>, nullptr, kSlow, 0},
    {"v_log_f32", Format::Vop1, 33, "f32=f32", f32_function<logarithm>, nullptr, kSlow, 0},
    {"v_rcp_f32", Format::Vop1, 34, "f32=f32", f32_function<reciprocal>, nullptr, kSlow, 0},
    {"v_rcp_iflag_f32", Format::Vop1, 35, "f32=f32", f32_function<reciprocal>, nullptr, kSlow, 0},
    {"v_rsq_f32", Format::Vop1, 36, "f32=f32", f32_function<reciprocal_root>, nullptr, kSlow, 0},
    {"v_rcp_f64", Format::Vop1, 37, "f64=f64", v_rcp_f64, nullptr, kSlow | kDoubleRate, 0},
    {"v_rsq_f64", Format::Vop1, 38, "f64=f64", v_rsq_f64, nullptr, kSlow | kDoubleRate, 0},
    {"v_sqrt_f32", Format::Vop1, 39, "f32=f32", f32_function<square_root>, nullptr, kSlow, 0},
    {"v_sqrt_f64", Format::Vop1, 40, "f64=f64", v_sqrt_f64, nullptr, kSlow | kDoubleRate, 0},
    {"v_sin_f32", Format::Vop1, 41, "f32=f32", f32_periodic<wave_function<0>>, nullptr, kSlow, 0},
    {"v_cos_f32", Format::Vop1, 42, "f32=f32", f32_periodic<wave_function<1>>, nullptr, kSlow, 0},
    {"v_rcp_f16", Format::Vop1, 61, "f16=f16", f16_function<reciprocal>, nullptr, kSlow, 0},
    {"v_sqrt_f16", Format::Vop1, 62, "f16=f16", f16_function<square_root>, nullptr, kSlow, 0},
    {"v_rsq_f16", Format::Vop1, 63, "f16=f16", f16_function<reciprocal_root>, nullptr, kSlow, 0},
    {"v_log_f16", Format::Vop1, 64, "f16=f16", f16_function<logarithm>, nullptr, kSlow, 0},
    {"v_exp_f16", Format::Vop1, 65, "f16=f16", f16_function<power_of_two>, nullptr, kSlow, 0},
    {"v_sin_f16", Format::Vop1, 73, "f16=f16", f16_function<wave_function<0>>, nullptr, kSlow, 0},
    {"v_cos_f16", Format::Vop1, 74, "f16=f16", f16_function<wave_function<1>>, nullptr, kSlow, 0},
    {"v_exp_legacy_f32", Format::Vop1, 75, "f32=f32", f32_function<power_of_two>, nullptr, kSlow, 0},
    {"v_log_legacy_f32", Format::Vop1, 76, "f32=f32", f32_function<logarithm>, nullptr, kSlow, 0},
};

}  // namespace

std::span<const Row> vop_transcendental_rows() { return kRows; }

}  // namespace emu
