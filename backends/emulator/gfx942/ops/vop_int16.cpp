// SPDX-License-Identifier: MIT
// 16-bit integer vector arithmetic.
//
// Sources come in the low half of a word with zeros above, results leave likewise. What happens to the destination's other
// half: instructions that GFX9 took over from GFX8 clear it; those that came with op_sel (v_mad_u16 and the other
// VOP3-only ones) write one half and keep the other. AMD's Vega ISA guide says so of v_mad_u16/v_mad_i16 (and the
// CDNA3 pseudo-code of the *_legacy_* forms shows the contrast); for min3, max3, med3, v_add_i16 and v_sub_i16 it is our
// reading of the same rule.
#include <span>

#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

i32v sign_extended(const u32* words) { return load<i32v>(words) << 16 >> 16; }
u32v zero_extended(const u32* words) { return load<u32v>(words) & 0xffffu; }

/// Sources as exact 32-bit integers.
template <bool Signed>
auto source(const u32* words) {
    if constexpr (Signed) {
        return sign_extended(words);
    } else {
        return __builtin_bit_cast(i32v, zero_extended(words));
    }
}

/// The exact result's 16 bits, saturated with clamp. `Signed` is the type's, the exact value is signed either way.
template <bool Signed>
void finish(Lanes& l, i32v exact) {
    if (l.clamp()) {
        constexpr i32 kLow = Signed ? INT16_MIN : 0, kHigh = Signed ? INT16_MAX : UINT16_MAX;
        exact = __builtin_elementwise_max(__builtin_elementwise_min(exact, i32v(kHigh)), i32v(kLow));
    }
    store(l.d, __builtin_bit_cast(u32v, exact) & 0xffffu);
}

template <bool Signed, auto Compute>
void binary(Lanes& l) {
    finish<Signed>(l, Compute(source<Signed>(l.s[0]), source<Signed>(l.s[1])));
}

template <bool Signed, auto Compute>
void ternary(Lanes& l) {
    finish<Signed>(l, Compute(source<Signed>(l.s[0]), source<Signed>(l.s[1]), source<Signed>(l.s[2])));
}

// a * b + c of 16-bit numbers: unsigned products need all 32 bits and the sum one more.
template <bool Signed>
void multiply_add(Lanes& l) {
    if constexpr (Signed) {
        finish<true>(l, sign_extended(l.s[0]) * sign_extended(l.s[1]) + sign_extended(l.s[2]));
    } else {
        const u32v product = zero_extended(l.s[0]) * zero_extended(l.s[1]);  // at most 0xfffe0001: the sum fits
        u32v sum = product + zero_extended(l.s[2]);
        if (l.clamp()) sum = __builtin_elementwise_min(sum, u32v(0xffffu));
        store(l.d, sum & 0xffffu);
    }
}

void v_mul_lo_u16(Lanes& l) {
    u32v product = zero_extended(l.s[0]) * zero_extended(l.s[1]);
    if (l.clamp()) product = __builtin_elementwise_min(product, u32v(0xffffu));
    store(l.d, product & 0xffffu);
}

void v_mad_u32_u16(Lanes& l) {
    const u32v product = zero_extended(l.s[0]) * zero_extended(l.s[1]);
    const u32v addend = load<u32v>(l.s[2]);
    store(l.d, l.clamp() ? __builtin_elementwise_add_sat(product, addend) : product + addend);
}

void v_mad_i32_i16(Lanes& l) {
    const i32v product = sign_extended(l.s[0]) * sign_extended(l.s[1]);
    const i32v addend = load<i32v>(l.s[2]);
    if (l.clamp()) {
        store(l.d, __builtin_elementwise_add_sat(product, addend));
    } else {
        store(l.d, __builtin_bit_cast(u32v, product) + __builtin_bit_cast(u32v, addend));
    }
}

void v_lshlrev_b16(Lanes& l) { store(l.d, zero_extended(l.s[1]) << (load<u32v>(l.s[0]) & 15) & 0xffffu); }

void v_lshrrev_b16(Lanes& l) { store(l.d, zero_extended(l.s[1]) >> (load<u32v>(l.s[0]) & 15)); }

void v_ashrrev_i16(Lanes& l) {
    const i32v shifted = sign_extended(l.s[1]) >> (load<i32v>(l.s[0]) & 15);
    store(l.d, __builtin_bit_cast(u32v, shifted) & 0xffffu);
}

i32v min_of(i32v a, i32v b) { return __builtin_elementwise_min(a, b); }
i32v max_of(i32v a, i32v b) { return __builtin_elementwise_max(a, b); }

constexpr auto kAdd = [](i32v a, i32v b) { return a + b; };
constexpr auto kSubtract = [](i32v a, i32v b) { return a - b; };
constexpr auto kSubtractReversed = [](i32v a, i32v b) { return b - a; };
constexpr auto kMin = [](i32v a, i32v b) { return min_of(a, b); };
constexpr auto kMax = [](i32v a, i32v b) { return max_of(a, b); };
constexpr auto kMin3 = [](i32v a, i32v b, i32v c) { return min_of(min_of(a, b), c); };
constexpr auto kMax3 = [](i32v a, i32v b, i32v c) { return max_of(max_of(a, b), c); };
constexpr auto kMedian = [](i32v a, i32v b, i32v c) { return max_of(min_of(a, b), min_of(max_of(a, b), c)); };

using enum Format;
constexpr Row kRows[] = {
    {"v_add_u16", Vop2, 38, "u16=u16,u16", binary<false, kAdd>, nullptr, 0, 0},
    {"v_sub_u16", Vop2, 39, "u16=u16,u16", binary<false, kSubtract>, nullptr, 0, 0},
    {"v_subrev_u16", Vop2, 40, "u16=u16,u16", binary<false, kSubtractReversed>, nullptr, 0, 0},
    {"v_mul_lo_u16", Vop2, 41, "u16=u16,u16", v_mul_lo_u16, nullptr, 0, 0},
    {"v_lshlrev_b16", Vop2, 42, "u16=u16,u16", v_lshlrev_b16, nullptr, 0, 0},
    {"v_lshrrev_b16", Vop2, 43, "u16=u16,u16", v_lshrrev_b16, nullptr, 0, 0},
    {"v_ashrrev_i16", Vop2, 44, "i16=i16,i16", v_ashrrev_i16, nullptr, 0, 0},
    {"v_max_u16", Vop2, 47, "u16=u16,u16", binary<false, kMax>, nullptr, 0, 0},
    {"v_max_i16", Vop2, 48, "i16=i16,i16", binary<true, kMax>, nullptr, 0, 0},
    {"v_min_u16", Vop2, 49, "u16=u16,u16", binary<false, kMin>, nullptr, 0, 0},
    {"v_min_i16", Vop2, 50, "i16=i16,i16", binary<true, kMin>, nullptr, 0, 0},

    {"v_mad_legacy_u16", Vop3, 491, "u16=u16,u16,u16", multiply_add<false>, nullptr, 0, 0},
    {"v_mad_legacy_i16", Vop3, 492, "i16=i16,i16,i16", multiply_add<true>, nullptr, 0, 0},
    {"v_mad_u32_u16", Vop3, 497, "u32=u16,u16,u32", v_mad_u32_u16, nullptr, 0, 0},
    {"v_mad_i32_i16", Vop3, 498, "i32=i16,i16,i32", v_mad_i32_i16, nullptr, 0, 0},
    {"v_min3_i16", Vop3, 501, "i16p=i16,i16,i16", ternary<true, kMin3>, nullptr, 0, 0},
    {"v_min3_u16", Vop3, 502, "u16p=u16,u16,u16", ternary<false, kMin3>, nullptr, 0, 0},
    {"v_max3_i16", Vop3, 504, "i16p=i16,i16,i16", ternary<true, kMax3>, nullptr, 0, 0},
    {"v_max3_u16", Vop3, 505, "u16p=u16,u16,u16", ternary<false, kMax3>, nullptr, 0, 0},
    {"v_med3_i16", Vop3, 507, "i16p=i16,i16,i16", ternary<true, kMedian>, nullptr, 0, 0},
    {"v_med3_u16", Vop3, 508, "u16p=u16,u16,u16", ternary<false, kMedian>, nullptr, 0, 0},
    {"v_mad_u16", Vop3, 516, "u16p=u16,u16,u16", multiply_add<false>, nullptr, 0, 0},
    {"v_mad_i16", Vop3, 517, "i16p=i16,i16,i16", multiply_add<true>, nullptr, 0, 0},
    {"v_add_i16", Vop3, 670, "i16p=i16,i16", binary<true, kAdd>, nullptr, 0, 0},
    {"v_sub_i16", Vop3, 671, "i16p=i16,i16", binary<true, kSubtract>, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_int16_rows() { return kRows; }

}  // namespace emu
