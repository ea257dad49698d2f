// SPDX-License-Identifier: MIT
// 32-bit integer vector arithmetic.
//
// Integer clamp is saturation to the range of the result's type, of the exact result (ISA guide, "Clamp"). Where the ISA
// guide's pseudo-code masks a shift count, so do we: C++ leaves larger counts undefined.
#include <span>

#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

template <class V, auto Compute>
void unary(Lanes& l) {
    store(l.d, Compute(load<V>(l.s[0])));
}

template <class V, auto Compute>
void binary(Lanes& l) {
    store(l.d, Compute(load<V>(l.s[0]), load<V>(l.s[1])));
}

template <class V, auto Compute>
void ternary(Lanes& l) {
    store(l.d, Compute(load<V>(l.s[0]), load<V>(l.s[1]), load<V>(l.s[2])));
}

template <class V>
V min_of(V a, V b) {
    return __builtin_elementwise_min(a, b);
}
template <class V>
V max_of(V a, V b) {
    return __builtin_elementwise_max(a, b);
}
template <class V>
V median(V a, V b, V c) {
    return max_of(min_of(a, b), min_of(max_of(a, b), c));
}

// Low 24 bits, extended.
u32v unsigned24(u32v value) { return value & 0xffffffu; }
i32v signed24(i32v value) { return value << 8 >> 8; }

u64v widen(u32v value) { return __builtin_convertvector(value, u64v); }
i64v widen(i32v value) { return __builtin_convertvector(value, i64v); }
u32v narrow(u64v value) { return __builtin_convertvector(value, u32v); }
i32v narrow(i64v value) { return __builtin_convertvector(value, i32v); }

// Exact results to 32 bits.
u32v saturate(u64v exact) { return narrow(min_of(exact, u64v(0xffffffffu))); }
i32v saturate(i64v exact) { return narrow(max_of(min_of(exact, i64v(INT32_MAX)), i64v(INT32_MIN))); }

// --- sums ------------------------------------------------------------------------------------------------------------

template <class V>
void add(Lanes& l) {
    const V a = load<V>(l.s[0]), b = load<V>(l.s[1]);
    if (l.clamp()) {
        store(l.d, __builtin_elementwise_add_sat(a, b));
    } else {
        store(l.d, load<u32v>(l.s[0]) + load<u32v>(l.s[1]));
    }
}

template <class V, int Minuend>
void subtract(Lanes& l) {
    const V a = load<V>(l.s[Minuend]), b = load<V>(l.s[1 - Minuend]);
    if (l.clamp()) {
        store(l.d, __builtin_elementwise_sub_sat(a, b));
    } else {
        store(l.d, load<u32v>(l.s[Minuend]) - load<u32v>(l.s[1 - Minuend]));
    }
}

// Sum with carry out, and with carry in where `WithCarry`.
template <bool WithCarry>
void add_carry(Lanes& l) {
    const u32v a = load<u32v>(l.s[0]), b = load<u32v>(l.s[1]);
    const u32v partial = a + b;
    i32v carry = partial < a;
    u32v sum = partial;
    if constexpr (WithCarry) {
        alignas(64) u32 in[kLanes];
        spread(l.mask_in, in);
        sum = partial - load<u32v>(in);  // all ones is -1
        carry |= sum < partial;
    }
    l.mask_out = to_mask(carry);
    store(l.d, l.clamp() ? sum | __builtin_bit_cast(u32v, carry) : sum);
}

// Difference with borrow out, and with borrow in where `WithBorrow`.
template <int Minuend, bool WithBorrow>
void subtract_borrow(Lanes& l) {
    const u32v a = load<u32v>(l.s[Minuend]), b = load<u32v>(l.s[1 - Minuend]);
    const u32v partial = a - b;
    i32v borrow = a < b;
    u32v difference = partial;
    if constexpr (WithBorrow) {
        alignas(64) u32 in[kLanes];
        spread(l.mask_in, in);
        difference = partial + load<u32v>(in);
        borrow |= difference > partial;
    }
    l.mask_out = to_mask(borrow);
    store(l.d, l.clamp() ? difference & ~__builtin_bit_cast(u32v, borrow) : difference);
}

// --- products --------------------------------------------------------------------------------------------------------

void v_mul_u32_u24(Lanes& l) {
    const u32v a = unsigned24(load<u32v>(l.s[0])), b = unsigned24(load<u32v>(l.s[1]));
    store(l.d, l.clamp() ? saturate(widen(a) * widen(b)) : a * b);
}

void v_mul_i32_i24(Lanes& l) {
    const i32v a = signed24(load<i32v>(l.s[0])), b = signed24(load<i32v>(l.s[1]));
    store(l.d, l.clamp() ? saturate(widen(a) * widen(b)) : narrow(widen(a) * widen(b)));
}

void v_mul_hi_u32_u24(Lanes& l) {
    const u64v product = widen(unsigned24(load<u32v>(l.s[0]))) * widen(unsigned24(load<u32v>(l.s[1])));
    store(l.d, narrow(product >> 32));
}

void v_mul_hi_i32_i24(Lanes& l) {
    const i64v product = widen(signed24(load<i32v>(l.s[0]))) * widen(signed24(load<i32v>(l.s[1])));
    store(l.d, narrow(product >> 32));
}

void v_mad_u32_u24(Lanes& l) {
    const u64v product = widen(unsigned24(load<u32v>(l.s[0]))) * widen(unsigned24(load<u32v>(l.s[1])));
    const u64v exact = product + widen(load<u32v>(l.s[2]));
    store(l.d, l.clamp() ? saturate(exact) : narrow(exact));
}

void v_mad_i32_i24(Lanes& l) {
    const i64v product = widen(signed24(load<i32v>(l.s[0]))) * widen(signed24(load<i32v>(l.s[1])));
    const i64v exact = product + widen(load<i32v>(l.s[2]));
    store(l.d, l.clamp() ? saturate(exact) : narrow(exact));
}

void v_mul_hi_u32(Lanes& l) { store(l.d, narrow(widen(load<u32v>(l.s[0])) * widen(load<u32v>(l.s[1])) >> 32)); }
void v_mul_hi_i32(Lanes& l) { store(l.d, narrow(widen(load<i32v>(l.s[0])) * widen(load<i32v>(l.s[1])) >> 32)); }

// --- counting bits ---------------------------------------------------------------------------------------------------

void v_bcnt_u32_b32(Lanes& l) { store(l.d, __builtin_elementwise_popcount(load<u32v>(l.s[0])) + load<u32v>(l.s[1])); }

// The first one from the top; all ones if there is none.
void v_ffbh_u32(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 value = l.s[0][lane];
        l.d[lane] = value ? static_cast<u32>(std::countl_zero(value)) : ~0u;
    }
}

void v_ffbl_b32(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 value = l.s[0][lane];
        l.d[lane] = value ? static_cast<u32>(std::countr_zero(value)) : ~0u;
    }
}

// The first bit from the top that differs from the sign.
void v_ffbh_i32(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 value = l.s[0][lane];
        const u32 changes = value ^ static_cast<u32>(static_cast<i32>(value) >> 31);
        l.d[lane] = changes ? static_cast<u32>(std::countl_zero(changes)) : ~0u;
    }
}

constexpr auto kMin = [](auto a, auto b) { return min_of(a, b); };
constexpr auto kMax = [](auto a, auto b) { return max_of(a, b); };
constexpr auto kMin3 = [](auto a, auto b, auto c) { return min_of(min_of(a, b), c); };
constexpr auto kMax3 = [](auto a, auto b, auto c) { return max_of(max_of(a, b), c); };
constexpr auto kMedian = [](auto a, auto b, auto c) { return median(a, b, c); };
constexpr auto kShiftLeft = [](auto count, auto value) { return value << (count & 31); };
constexpr auto kShiftRight = [](auto count, auto value) { return value >> (count & 31); };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kXnor = [](auto a, auto b) { return ~(a ^ b); };
constexpr auto kMultiply = [](auto a, auto b) { return a * b; };
constexpr auto kXorAdd = [](auto a, auto b, auto c) { return (a ^ b) + c; };
constexpr auto kAdd3 = [](auto a, auto b, auto c) { return a + b + c; };
constexpr auto kOr3 = [](auto a, auto b, auto c) { return a | b | c; };
constexpr auto kAndOr = [](auto a, auto b, auto c) { return (a & b) | c; };
constexpr auto kShiftLeftAdd = [](auto a, auto b, auto c) { return (a << (b & 31)) + c; };
constexpr auto kShiftLeftOr = [](auto a, auto b, auto c) { return (a << (b & 31)) | c; };
constexpr auto kAddShiftLeft = [](auto a, auto b, auto c) { return (a + b) << (c & 31); };

using enum Format;
constexpr Row kRows[] = {
    {"v_mul_i32_i24", Vop2, 6, "i32=i32,i32", v_mul_i32_i24, nullptr, 0, 0},
    {"v_mul_hi_i32_i24", Vop2, 7, "i32=i32,i32", v_mul_hi_i32_i24, nullptr, 0, 0},
    {"v_mul_u32_u24", Vop2, 8, "u32=u32,u32", v_mul_u32_u24, nullptr, 0, 0},
    {"v_mul_hi_u32_u24", Vop2, 9, "u32=u32,u32", v_mul_hi_u32_u24, nullptr, 0, 0},
    {"v_min_i32", Vop2, 12, "i32=i32,i32", binary<i32v, kMin>, nullptr, 0, 0},
    {"v_max_i32", Vop2, 13, "i32=i32,i32", binary<i32v, kMax>, nullptr, 0, 0},
    {"v_min_u32", Vop2, 14, "u32=u32,u32", binary<u32v, kMin>, nullptr, 0, 0},
    {"v_max_u32", Vop2, 15, "u32=u32,u32", binary<u32v, kMax>, nullptr, 0, 0},
    {"v_lshrrev_b32", Vop2, 16, "u32=u32,u32", binary<u32v, kShiftRight>, nullptr, 0, 0},
    {"v_ashrrev_i32", Vop2, 17, "i32=i32,i32", binary<i32v, kShiftRight>, nullptr, 0, 0},
    {"v_lshlrev_b32", Vop2, 18, "u32=u32,u32", binary<u32v, kShiftLeft>, nullptr, 0, 0},
    {"v_and_b32", Vop2, 19, "b32=b32,b32", binary<u32v, kAnd>, nullptr, 0, 0},
    {"v_or_b32", Vop2, 20, "b32=b32,b32", binary<u32v, kOr>, nullptr, 0, 0},
    {"v_xor_b32", Vop2, 21, "b32=b32,b32", binary<u32v, kXor>, nullptr, 0, 0},
    {"v_add_co_u32", Vop2, 25, "u32,m=u32,u32", add_carry<false>, nullptr, 0, 0},
    {"v_sub_co_u32", Vop2, 26, "u32,m=u32,u32", subtract_borrow<0, false>, nullptr, 0, 0},
    {"v_subrev_co_u32", Vop2, 27, "u32,m=u32,u32", subtract_borrow<1, false>, nullptr, 0, 0},
    {"v_addc_co_u32", Vop2, 28, "u32,m=u32,u32,m", add_carry<true>, nullptr, 0, 0},
    {"v_subb_co_u32", Vop2, 29, "u32,m=u32,u32,m", subtract_borrow<0, true>, nullptr, 0, 0},
    {"v_subbrev_co_u32", Vop2, 30, "u32,m=u32,u32,m", subtract_borrow<1, true>, nullptr, 0, 0},
    {"v_add_u32", Vop2, 52, "u32=u32,u32", add<u32v>, nullptr, 0, 0},
    {"v_sub_u32", Vop2, 53, "u32=u32,u32", subtract<u32v, 0>, nullptr, 0, 0},
    {"v_subrev_u32", Vop2, 54, "u32=u32,u32", subtract<u32v, 1>, nullptr, 0, 0},
    {"v_xnor_b32", Vop2, 61, "b32=b32,b32", binary<u32v, kXnor>, nullptr, 0, 0},

    {"v_ffbh_u32", Vop1, 45, "u32=u32", v_ffbh_u32, nullptr, 0, 0},
    {"v_ffbl_b32", Vop1, 46, "u32=b32", v_ffbl_b32, nullptr, 0, 0},
    {"v_ffbh_i32", Vop1, 47, "i32=i32", v_ffbh_i32, nullptr, 0, 0},

    {"v_mad_i32_i24", Vop3, 450, "i32=i32,i32,i32", v_mad_i32_i24, nullptr, 0, 0},
    {"v_mad_u32_u24", Vop3, 451, "u32=u32,u32,u32", v_mad_u32_u24, nullptr, 0, 0},
    {"v_min3_i32", Vop3, 465, "i32=i32,i32,i32", ternary<i32v, kMin3>, nullptr, 0, 0},
    {"v_min3_u32", Vop3, 466, "u32=u32,u32,u32", ternary<u32v, kMin3>, nullptr, 0, 0},
    {"v_max3_i32", Vop3, 468, "i32=i32,i32,i32", ternary<i32v, kMax3>, nullptr, 0, 0},
    {"v_max3_u32", Vop3, 469, "u32=u32,u32,u32", ternary<u32v, kMax3>, nullptr, 0, 0},
    {"v_med3_i32", Vop3, 471, "i32=i32,i32,i32", ternary<i32v, kMedian>, nullptr, 0, 0},
    {"v_med3_u32", Vop3, 472, "u32=u32,u32,u32", ternary<u32v, kMedian>, nullptr, 0, 0},
    {"v_xad_u32", Vop3, 499, "u32=u32,u32,u32", ternary<u32v, kXorAdd>, nullptr, 0, 0},
    {"v_lshl_add_u32", Vop3, 509, "u32=u32,u32,u32", ternary<u32v, kShiftLeftAdd>, nullptr, 0, 0},
    {"v_add_lshl_u32", Vop3, 510, "u32=u32,u32,u32", ternary<u32v, kAddShiftLeft>, nullptr, 0, 0},
    {"v_add3_u32", Vop3, 511, "u32=u32,u32,u32", ternary<u32v, kAdd3>, nullptr, 0, 0},
    {"v_lshl_or_b32", Vop3, 512, "b32=b32,b32,b32", ternary<u32v, kShiftLeftOr>, nullptr, 0, 0},
    {"v_and_or_b32", Vop3, 513, "b32=b32,b32,b32", ternary<u32v, kAndOr>, nullptr, 0, 0},
    {"v_or3_b32", Vop3, 514, "b32=b32,b32,b32", ternary<u32v, kOr3>, nullptr, 0, 0},
    {"v_mul_lo_u32", Vop3, 645, "u32=u32,u32", binary<u32v, kMultiply>, nullptr, 0, 0},
    {"v_mul_hi_u32", Vop3, 646, "u32=u32,u32", v_mul_hi_u32, nullptr, 0, 0},
    {"v_mul_hi_i32", Vop3, 647, "i32=i32,i32", v_mul_hi_i32, nullptr, 0, 0},
    {"v_bcnt_u32_b32", Vop3, 651, "u32=b32,u32", v_bcnt_u32_b32, nullptr, 0, 0},
    {"v_add_i32", Vop3, 668, "i32=i32,i32", add<i32v>, nullptr, 0, 0},
    {"v_sub_i32", Vop3, 669, "i32=i32,i32", subtract<i32v, 0>, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_int_rows() { return kRows; }

}  // namespace emu
