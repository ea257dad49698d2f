// SPDX-License-Identifier: MIT
// f16 arithmetic. Operands are widened to f32, where sums and products of f16 numbers are exact or rounded so late that
// rounding once more to f16 is right (24 bits are two more than twice 11), and results are rounded as MODE says.
//
// The instructions that came with gfx9 and have op_sel (mad, fma, div_fixup, min3, max3, med3) leave the other half of
// their destination alone; their "legacy" forms and all older ones clear it (ISA guide, and GCNSubtarget.cpp of LLVM).
#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

u32v bits(const Lanes& l, int i) { return load<u32v>(l.s[i]); }
f32v source(const Lanes& l, int i) { return f16_to_f32(bits(l, i)); }
void result(Lanes& l, f32v value) { store(l.d, f32_to_f16(value, half_rounding(*l.wave))); }

void v_add_f16(Lanes& l) { result(l, source(l, 0) + source(l, 1)); }
void v_sub_f16(Lanes& l) { result(l, source(l, 0) - source(l, 1)); }
void v_subrev_f16(Lanes& l) { result(l, source(l, 1) - source(l, 0)); }
void v_mul_f16(Lanes& l) { result(l, source(l, 0) * source(l, 1)); }

void v_fma_f16(Lanes& l) { store(l.d, fma_f16(bits(l, 0), bits(l, 1), bits(l, 2), half_rounding(*l.wave))); }

// Not fused: the product is rounded to f16 before the addend comes. Also v_mac, v_madmk and v_madak.
void v_mad_f16(Lanes& l) {
    const u32v product = f32_to_f16(source(l, 0) * source(l, 1), half_rounding(*l.wave));
    result(l, f16_to_f32(product) + source(l, 2));
}

// Extrema are chosen among the operands' bits: widening to f32 would quiet the NaNs.
using Half = u32v;

i32v is_nan(Half a) { return (a & 0x7fffu) > 0x7c00u; }

template <bool kMax>
Half extremum(Half a, Half b, bool ieee) {
    const f32v value_a = f16_to_f32(a), value_b = f16_to_f32(b);
    const i32v nan_a = is_nan(a), nan_b = is_nan(b);
    Half chosen = choose((kMax ? value_a > value_b : value_a < value_b) | (nan_b & ~nan_a), a, b);
    chosen = choose(value_a == value_b, kMax ? a & b : a | b, chosen);
    if (ieee) {
        chosen = choose(nan_b & ((b & 0x200u) == 0u), b | 0x200u, chosen);
        chosen = choose(nan_a & ((a & 0x200u) == 0u), a | 0x200u, chosen);
    }
    return chosen;
}

template <bool kMax>
Half extremum3(Half a, Half b, Half c, bool ieee) {
    return extremum<kMax>(extremum<kMax>(a, b, ieee), c, ieee);
}

void v_min_f16(Lanes& l) { store(l.d, extremum<false>(bits(l, 0), bits(l, 1), l.wave->ieee())); }
void v_max_f16(Lanes& l) { store(l.d, extremum<true>(bits(l, 0), bits(l, 1), l.wave->ieee())); }
void v_min3_f16(Lanes& l) { store(l.d, extremum3<false>(bits(l, 0), bits(l, 1), bits(l, 2), l.wave->ieee())); }
void v_max3_f16(Lanes& l) { store(l.d, extremum3<true>(bits(l, 0), bits(l, 1), bits(l, 2), l.wave->ieee())); }

void v_med3_f16(Lanes& l) {
    const bool ieee = l.wave->ieee();
    const Half a = bits(l, 0), b = bits(l, 1), c = bits(l, 2);
    const f32v most = f16_to_f32(extremum3<true>(a, b, c, ieee));
    Half chosen = extremum<true>(a, b, ieee);
    chosen = choose(most == f16_to_f32(b), extremum<true>(a, c, ieee), chosen);
    chosen = choose(most == f16_to_f32(a), extremum<true>(b, c, ieee), chosen);
    store(l.d, choose(is_nan(a) | is_nan(b) | is_nan(c), extremum3<false>(a, b, c, ieee), chosen));
}

// Integral values and fractions of f16 numbers are f16 numbers.
void v_trunc_f16(Lanes& l) { result(l, __builtin_elementwise_trunc(source(l, 0))); }
void v_ceil_f16(Lanes& l) { result(l, __builtin_elementwise_ceil(source(l, 0))); }
void v_rndne_f16(Lanes& l) { result(l, __builtin_elementwise_roundeven(source(l, 0))); }
void v_floor_f16(Lanes& l) { result(l, __builtin_elementwise_floor(source(l, 0))); }

// Below 1 also where the rounded difference would be 1 (small negative numbers).
void v_fract_f16(Lanes& l) {
    const f32v a = source(l, 0);
    const u32v fraction = f32_to_f16(a - __builtin_elementwise_floor(a), half_rounding(*l.wave));
    store(l.d, choose(fraction == 0x3c00u, u32v(0x3bffu), fraction));
}

void v_frexp_exp_i16_f16(Lanes& l) { store(l.d, std::bit_cast<u32v>(exponent_of(source(l, 0))) & 0xffffu); }
void v_frexp_mant_f16(Lanes& l) { result(l, mantissa_of(source(l, 0))); }

// Exact in f32: beyond 2^+-60 nothing changes any more.
void v_ldexp_f16(Lanes& l) {
    i32v exponent = std::bit_cast<i32v>(bits(l, 1) << 16) >> 16;
    exponent = __builtin_elementwise_min(__builtin_elementwise_max(exponent, i32v(-60)), i32v(60));
    result(l, source(l, 0) * floats_of(std::bit_cast<u32v>(exponent + 127) << 23));
}

void v_pack_b32_f16(Lanes& l) { store(l.d, (bits(l, 0) & 0xffffu) | bits(l, 1) << 16); }

constexpr Row kRows[] = {
    {"v_add_f16", Format::Vop2, 31, "f16=f16,f16", v_add_f16, nullptr, 0, 0},
    {"v_sub_f16", Format::Vop2, 32, "f16=f16,f16", v_sub_f16, nullptr, 0, 0},
    {"v_subrev_f16", Format::Vop2, 33, "f16=f16,f16", v_subrev_f16, nullptr, 0, 0},
    {"v_mul_f16", Format::Vop2, 34, "f16=f16,f16", v_mul_f16, nullptr, 0, 0},
    {"v_mac_f16", Format::Vop2, 35, "f16=f16,f16,d", v_mad_f16, nullptr, 0, 0},
    {"v_madmk_f16", Format::Vop2, 36, "f16=f16,k,f16", v_mad_f16, nullptr, 0, 0},
    {"v_madak_f16", Format::Vop2, 37, "f16=f16,f16,k", v_mad_f16, nullptr, 0, 0},
    {"v_max_f16", Format::Vop2, 45, "f16=f16,f16", v_max_f16, nullptr, 0, 0},
    {"v_min_f16", Format::Vop2, 46, "f16=f16,f16", v_min_f16, nullptr, 0, 0},
    {"v_ldexp_f16", Format::Vop2, 51, "f16=f16,i16", v_ldexp_f16, nullptr, 0, 0},
    {"v_frexp_mant_f16", Format::Vop1, 66, "f16=f16", v_frexp_mant_f16, nullptr, 0, 0},
    {"v_frexp_exp_i16_f16", Format::Vop1, 67, "i16=f16", v_frexp_exp_i16_f16, nullptr, 0, 0},
    {"v_floor_f16", Format::Vop1, 68, "f16=f16", v_floor_f16, nullptr, 0, 0},
    {"v_ceil_f16", Format::Vop1, 69, "f16=f16", v_ceil_f16, nullptr, 0, 0},
    {"v_trunc_f16", Format::Vop1, 70, "f16=f16", v_trunc_f16, nullptr, 0, 0},
    {"v_rndne_f16", Format::Vop1, 71, "f16=f16", v_rndne_f16, nullptr, 0, 0},
    {"v_fract_f16", Format::Vop1, 72, "f16=f16", v_fract_f16, nullptr, 0, 0},
    {"v_mad_legacy_f16", Format::Vop3, 490, "f16=f16,f16,f16", v_mad_f16, nullptr, 0, 0},
    {"v_fma_legacy_f16", Format::Vop3, 494, "f16=f16,f16,f16", v_fma_f16, nullptr, 0, 0},
    {"v_min3_f16", Format::Vop3, 500, "f16p=f16,f16,f16", v_min3_f16, nullptr, 0, 0},
    {"v_max3_f16", Format::Vop3, 503, "f16p=f16,f16,f16", v_max3_f16, nullptr, 0, 0},
    {"v_med3_f16", Format::Vop3, 506, "f16p=f16,f16,f16", v_med3_f16, nullptr, 0, 0},
    {"v_mad_f16", Format::Vop3, 515, "f16p=f16,f16,f16", v_mad_f16, nullptr, 0, 0},
    {"v_fma_f16", Format::Vop3, 518, "f16p=f16,f16,f16", v_fma_f16, nullptr, 0, 0},
    {"v_pack_b32_f16", Format::Vop3, 672, "b32=f16,f16", v_pack_b32_f16, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_f16_rows() { return kRows; }

}  // namespace emu
