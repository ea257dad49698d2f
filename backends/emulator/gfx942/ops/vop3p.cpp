// SPDX-License-Identifier: MIT
// Packed 16-bit and 32-bit arithmetic, dot products and mixed-precision multiply-add.
//
// Dot products of floats follow the ISA guide's pseudo-code: the products are exact, and each is added to the accumulator
// with one rounding.
#include <span>

#include "../float16.h"
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

constexpr int kHalves = 2 * kLanes;  // element 2 * lane is the low half
using pu16v = u16 __attribute__((ext_vector_type(kHalves)));
using pi16v = i16 __attribute__((ext_vector_type(kHalves)));
using pu32v = u32 __attribute__((ext_vector_type(kHalves)));
using pi32v = i32 __attribute__((ext_vector_type(kHalves)));

template <class V>
V min_of(V a, V b) {
    return __builtin_elementwise_min(a, b);
}
template <class V>
V max_of(V a, V b) {
    return __builtin_elementwise_max(a, b);
}

// --- packed 16-bit integers ------------------------------------------------------------------------------------------

template <class V, auto Compute>
void packed(Lanes& l) {
    store(l.d, Compute(load<V>(l.s[0]), load<V>(l.s[1])));
}

template <class V, bool Subtract>
void packed_sum(Lanes& l) {
    if (l.clamp()) {
        const V a = load<V>(l.s[0]), b = load<V>(l.s[1]);
        store(l.d, Subtract ? __builtin_elementwise_sub_sat(a, b) : __builtin_elementwise_add_sat(a, b));
    } else {
        const pu16v a = load<pu16v>(l.s[0]), b = load<pu16v>(l.s[1]);
        store(l.d, Subtract ? a - b : a + b);
    }
}

// a * b + c with all bits, then saturated or cut.
void v_pk_mad_i16(Lanes& l) {
    const pi32v product =
        __builtin_convertvector(load<pi16v>(l.s[0]), pi32v) * __builtin_convertvector(load<pi16v>(l.s[1]), pi32v);
    pi32v sum = product + __builtin_convertvector(load<pi16v>(l.s[2]), pi32v);
    if (l.clamp()) sum = max_of(min_of(sum, pi32v(INT16_MAX)), pi32v(INT16_MIN));
    store(l.d, __builtin_convertvector(sum, pi16v));
}

pu32v multiply_unsigned(const Lanes& l) {
    return __builtin_convertvector(load<pu16v>(l.s[0]), pu32v) * __builtin_convertvector(load<pu16v>(l.s[1]), pu32v);
}

void v_pk_mad_u16(Lanes& l) {
    pu32v sum = multiply_unsigned(l) + __builtin_convertvector(load<pu16v>(l.s[2]), pu32v);
    if (l.clamp()) sum = min_of(sum, pu32v(UINT16_MAX));
    store(l.d, __builtin_convertvector(sum, pu16v));
}

void v_pk_mul_lo_u16(Lanes& l) {
    pu32v product = multiply_unsigned(l);
    if (l.clamp()) product = min_of(product, pu32v(UINT16_MAX));
    store(l.d, __builtin_convertvector(product, pu16v));
}

constexpr auto kMin = [](auto a, auto b) { return min_of(a, b); };
constexpr auto kMax = [](auto a, auto b) { return max_of(a, b); };
constexpr auto kShiftLeft = [](auto count, auto value) { return value << (count & 15); };
constexpr auto kShiftRight = [](auto count, auto value) { return value >> (count & 15); };

// --- packed 16-bit floats --------------------------------------------------------------------------------------------

struct HalfPair {
    f32v low, high;
};

HalfPair halves(const u32* words) {
    const u32v both = load<u32v>(words);
    return {f16_to_f32(both & 0xffffu), f16_to_f32(both >> 16)};
}

void store_halves(Lanes& l, f32v low, f32v high) {
    const unsigned round = half_rounding(*l.wave);
    store(l.d, f32_to_f16(low, round) | f32_to_f16(high, round) << 16);
}

void v_pk_fma_f16(Lanes& l) {
    const u32v a = load<u32v>(l.s[0]), b = load<u32v>(l.s[1]), c = load<u32v>(l.s[2]);
    const unsigned round = half_rounding(*l.wave);
    const u32v low = fma_f16(a & 0xffffu, b & 0xffffu, c & 0xffffu, round);
    store(l.d, low | fma_f16(a >> 16, b >> 16, c >> 16, round) << 16);
}

// A product of two f16 is exact in f32, and f32's 24 bits are twice f16's 11 plus two, so that rounding a sum twice is
// rounding it once.
void v_pk_mul_f16(Lanes& l) {
    const HalfPair a = halves(l.s[0]), b = halves(l.s[1]);
    store_halves(l, a.low * b.low, a.high * b.high);
}

void v_pk_add_f16(Lanes& l) {
    const HalfPair a = halves(l.s[0]), b = halves(l.s[1]);
    store_halves(l, a.low + b.low, a.high + b.high);
}

// On the bits: a signalling NaN is quieted and wins (IEEE mode), then the number wins over a NaN, and -0 < +0.
template <bool Greatest>
void packed_extreme_f16(Lanes& l) {
    const bool ieee = l.wave->ieee();
    const pu16v a = load<pu16v>(l.s[0]), b = load<pu16v>(l.s[1]);
    const pu16v magnitude_a = a & u16{0x7fff}, magnitude_b = b & u16{0x7fff};
    const auto nan_a = magnitude_a > u16{0x7c00}, nan_b = magnitude_b > u16{0x7c00};
    const auto quiet_a = (a & u16{0x200}) != u16{0}, quiet_b = (b & u16{0x200}) != u16{0};
    // Sign and magnitude to two's complement order.
    const pi16v order_a = __builtin_bit_cast(pi16v, a >> 15 != u16{0} ? ~magnitude_a : magnitude_a);
    const pi16v order_b = __builtin_bit_cast(pi16v, b >> 15 != u16{0} ? ~magnitude_b : magnitude_b);
    const auto first = Greatest ? order_a > order_b : order_a < order_b;
    pu16v result = first ? a : b;
    result = nan_b ? a : result;
    result = nan_a ? b : result;
    if (ieee) {
        result = nan_b & ~quiet_b ? b | u16{0x200} : result;
        result = nan_a & ~quiet_a ? a | u16{0x200} : result;
    }
    store(l.d, result);
}

// --- packed f32 ------------------------------------------------------------------------------------------------------

void v_pk_fma_f32(Lanes& l) {
    const f32v low = __builtin_elementwise_fma(load<f32v>(l.s[0]), load<f32v>(l.s[1]), load<f32v>(l.s[2]));
    const f32v high = __builtin_elementwise_fma(
        load<f32v>(l.s[0] + kLanes), load<f32v>(l.s[1] + kLanes), load<f32v>(l.s[2] + kLanes));
    store(l.d, low);
    store(l.d + kLanes, high);
}

void v_pk_mul_f32(Lanes& l) {
    const f32v low = load<f32v>(l.s[0]) * load<f32v>(l.s[1]);
    const f32v high = load<f32v>(l.s[0] + kLanes) * load<f32v>(l.s[1] + kLanes);
    store(l.d, low);
    store(l.d + kLanes, high);
}

void v_pk_add_f32(Lanes& l) {
    const f32v low = load<f32v>(l.s[0]) + load<f32v>(l.s[1]);
    const f32v high = load<f32v>(l.s[0] + kLanes) + load<f32v>(l.s[1] + kLanes);
    store(l.d, low);
    store(l.d + kLanes, high);
}

// op_sel alone selects: the low result from source 0, the high one from source 1.
void v_pk_mov_b32(Lanes& l) {
    const u32v low = load<u32v>(l.s[0]), high = load<u32v>(l.s[1]);
    store(l.d, low);
    store(l.d + kLanes, high);
}

// --- dot products ----------------------------------------------------------------------------------------------------

void v_dot2_f32_f16(Lanes& l) {
    const HalfPair a = halves(l.s[0]), b = halves(l.s[1]);
    const f32v first = load<f32v>(l.s[2]) + a.low * b.low;
    store(l.d, first + a.high * b.high);
}

/// Element `n` of `Bits` bits of each word, extended to 64 bits.
template <int Bits, bool Signed>
i64v element(u32v words, int n) {
    if constexpr (Signed) {
        const i32v top = __builtin_bit_cast(i32v, words << (32 - Bits - n * Bits));
        return __builtin_convertvector(top >> (32 - Bits), i64v);
    } else {
        return __builtin_convertvector(words >> (n * Bits) & ((1u << Bits) - 1u), i64v);
    }
}

// Sum of products and accumulator, exact; then cut to 32 bits or saturated.
template <int Bits, bool Signed>
void dot(Lanes& l) {
    const u32v a = load<u32v>(l.s[0]), b = load<u32v>(l.s[1]);
    i64v sum =
        Signed ? __builtin_convertvector(load<i32v>(l.s[2]), i64v) : __builtin_convertvector(load<u32v>(l.s[2]), i64v);
    for (int n = 0; n < 32 / Bits; ++n) sum += element<Bits, Signed>(a, n) * element<Bits, Signed>(b, n);
    if (l.clamp()) {
        constexpr i64 kLow = Signed ? INT32_MIN : 0, kHigh = Signed ? INT32_MAX : i64{UINT32_MAX};
        sum = max_of(min_of(sum, i64v(kHigh)), i64v(kLow));
    }
    store(l.d, __builtin_convertvector(sum, u32v));
}

// --- mixed precision -------------------------------------------------------------------------------------------------

f32v mixed(const Lanes& l) {
    return __builtin_elementwise_fma(load<f32v>(l.s[0]), load<f32v>(l.s[1]), load<f32v>(l.s[2]));
}

void v_fma_mix_f32(Lanes& l) { store(l.d, mixed(l)); }

// The f32 result is rounded to f16: two roundings, as the ISA guide writes it.
void v_fma_mixlo_f16(Lanes& l) { store(l.d, f32_to_f16(mixed(l), half_rounding(*l.wave))); }

// The result goes to the high half, and the low half stays; so clamp and denormals are ours.
void v_fma_mixhi_f16(Lanes& l) {
    u32v half = f32_to_f16(mixed(l), half_rounding(*l.wave));
    if (!(l.wave->mode >> 7 & 1)) half = (half & 0x7c00u) == 0u ? half & 0x8000u : half;
    if (l.clamp()) {
        const u32v one = 0x3c00u;
        const auto nan = (half & 0x7fffu) > 0x7c00u;
        u32v clamped = (half & 0x8000u) != 0u ? u32v(0u) : min_of(half, one);
        clamped = nan ? (l.wave->dx10_clamp() ? u32v(0u) : half) : clamped;
        half = clamped;
    }
    const u32v old = load<u32v>(l.wave->v(l.op->dst.index));
    store(l.d, (old & 0xffffu) | half << 16);
}

using enum Format;
constexpr Row kRows[] = {
    {"v_pk_mad_i16", Vop3p, 0, "pi16=pi16,pi16,pi16", v_pk_mad_i16, nullptr, 0, 0},
    {"v_pk_mul_lo_u16", Vop3p, 1, "pi16=pi16,pi16", v_pk_mul_lo_u16, nullptr, 0, 0},
    {"v_pk_add_i16", Vop3p, 2, "pi16=pi16,pi16", packed_sum<pi16v, false>, nullptr, 0, 0},
    {"v_pk_sub_i16", Vop3p, 3, "pi16=pi16,pi16", packed_sum<pi16v, true>, nullptr, 0, 0},
    {"v_pk_lshlrev_b16", Vop3p, 4, "pi16=pi16,pi16", packed<pu16v, kShiftLeft>, nullptr, 0, 0},
    {"v_pk_lshrrev_b16", Vop3p, 5, "pi16=pi16,pi16", packed<pu16v, kShiftRight>, nullptr, 0, 0},
    {"v_pk_ashrrev_i16", Vop3p, 6, "pi16=pi16,pi16", packed<pi16v, kShiftRight>, nullptr, 0, 0},
    {"v_pk_max_i16", Vop3p, 7, "pi16=pi16,pi16", packed<pi16v, kMax>, nullptr, 0, 0},
    {"v_pk_min_i16", Vop3p, 8, "pi16=pi16,pi16", packed<pi16v, kMin>, nullptr, 0, 0},
    {"v_pk_mad_u16", Vop3p, 9, "pi16=pi16,pi16,pi16", v_pk_mad_u16, nullptr, 0, 0},
    {"v_pk_add_u16", Vop3p, 10, "pi16=pi16,pi16", packed_sum<pu16v, false>, nullptr, 0, 0},
    {"v_pk_sub_u16", Vop3p, 11, "pi16=pi16,pi16", packed_sum<pu16v, true>, nullptr, 0, 0},
    {"v_pk_max_u16", Vop3p, 12, "pi16=pi16,pi16", packed<pu16v, kMax>, nullptr, 0, 0},
    {"v_pk_min_u16", Vop3p, 13, "pi16=pi16,pi16", packed<pu16v, kMin>, nullptr, 0, 0},
    {"v_pk_fma_f16", Vop3p, 14, "pf16=pf16,pf16,pf16", v_pk_fma_f16, nullptr, 0, 0},
    {"v_pk_add_f16", Vop3p, 15, "pf16=pf16,pf16", v_pk_add_f16, nullptr, 0, 0},
    {"v_pk_mul_f16", Vop3p, 16, "pf16=pf16,pf16", v_pk_mul_f16, nullptr, 0, 0},
    {"v_pk_min_f16", Vop3p, 17, "pf16=pf16,pf16", packed_extreme_f16<false>, nullptr, 0, 0},
    {"v_pk_max_f16", Vop3p, 18, "pf16=pf16,pf16", packed_extreme_f16<true>, nullptr, 0, 0},
    {"v_fma_mix_f32", Vop3p, 32, "f32=mix,mix,mix", v_fma_mix_f32, nullptr, 0, 0},
    {"v_fma_mixlo_f16", Vop3p, 33, "f16p=mix,mix,mix", v_fma_mixlo_f16, nullptr, 0, 0},
    {"v_fma_mixhi_f16", Vop3p, 34, "b32=mix,mix,mix", v_fma_mixhi_f16, nullptr, 0, 0},
    {"v_dot2_f32_f16", Vop3p, 35, "f32=pf16,pf16,f32", v_dot2_f32_f16, nullptr, 0, 0},
    {"v_dot2_i32_i16", Vop3p, 38, "i32=pi16,pi16,i32", dot<16, true>, nullptr, 0, 0},
    {"v_dot2_u32_u16", Vop3p, 39, "u32=pi16,pi16,u32", dot<16, false>, nullptr, 0, 0},
    {"v_dot4_i32_i8", Vop3p, 40, "i32=b32,b32,i32", dot<8, true>, nullptr, 0, 0},
    {"v_dot4_u32_u8", Vop3p, 41, "u32=b32,b32,u32", dot<8, false>, nullptr, 0, 0},
    {"v_dot8_i32_i4", Vop3p, 42, "i32=b32,b32,i32", dot<4, true>, nullptr, 0, 0},
    {"v_dot8_u32_u4", Vop3p, 43, "u32=b32,b32,u32", dot<4, false>, nullptr, 0, 0},
    {"v_pk_fma_f32", Vop3p, 48, "pf32=pf32,pf32,pf32", v_pk_fma_f32, nullptr, kDoubleRate, 0},
    {"v_pk_mul_f32", Vop3p, 49, "pf32=pf32,pf32", v_pk_mul_f32, nullptr, kDoubleRate, 0},
    {"v_pk_add_f32", Vop3p, 50, "pf32=pf32,pf32", v_pk_add_f32, nullptr, kDoubleRate, 0},
    {"v_pk_mov_b32", Vop3p, 51, "pb32=pb32,pb32", v_pk_mov_b32, nullptr, kDoubleRate, 0},

    {"v_dot2c_f32_f16", Vop2, 55, "f32=pf16,pf16,d", v_dot2_f32_f16, nullptr, 0, 0},
    {"v_dot2c_i32_i16", Vop2, 56, "i32=pi16,pi16,d", dot<16, true>, nullptr, 0, 0},
    {"v_dot4c_i32_i8", Vop2, 57, "i32=b32,b32,d", dot<8, true>, nullptr, 0, 0},
    {"v_dot8c_i32_i4", Vop2, 58, "i32=b32,b32,d", dot<4, true>, nullptr, 0, 0},
    {"v_pk_fmac_f16", Vop2, 60, "pf16=pf16,pf16,d", v_pk_fma_f16, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop3p_rows() { return kRows; }

}  // namespace emu
