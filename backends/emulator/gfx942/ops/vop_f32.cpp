// SPDX-License-Identifier: MIT
// f32 arithmetic: sums, products, fused, extrema, rounding to integers, parts of a number, cube map coordinates.
// Source: ISA guide, chapter "VOP1/VOP2/VOP3 instructions".
#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

f32v source(const Lanes& l, int i) { return load<f32v>(l.s[i]); }

void v_add_f32(Lanes& l) { store(l.d, source(l, 0) + source(l, 1)); }
void v_sub_f32(Lanes& l) { store(l.d, source(l, 0) - source(l, 1)); }
void v_subrev_f32(Lanes& l) { store(l.d, source(l, 1) - source(l, 0)); }
void v_mul_f32(Lanes& l) { store(l.d, source(l, 0) * source(l, 1)); }

// One function for v_fma, v_fmac, v_fmamk and v_fmaak: the signature puts the operands in the formula's order.
void v_fma_f32(Lanes& l) { store(l.d, __builtin_elementwise_fma(source(l, 0), source(l, 1), source(l, 2))); }

// 0 times anything is +0, also infinity and NaN.
void v_mul_legacy_f32(Lanes& l) {
    const f32v a = source(l, 0), b = source(l, 1);
    store(l.d, choose((a == 0.0f) | (b == 0.0f), f32v(0.0f), a * b));
}

void v_min_f32(Lanes& l) { store(l.d, minimum(source(l, 0), source(l, 1), l.wave->ieee())); }
void v_max_f32(Lanes& l) { store(l.d, maximum(source(l, 0), source(l, 1), l.wave->ieee())); }

void v_min3_f32(Lanes& l) {
    const bool ieee = l.wave->ieee();
    store(l.d, minimum(minimum(source(l, 0), source(l, 1), ieee), source(l, 2), ieee));
}

void v_max3_f32(Lanes& l) {
    const bool ieee = l.wave->ieee();
    store(l.d, maximum(maximum(source(l, 0), source(l, 1), ieee), source(l, 2), ieee));
}

void v_med3_f32(Lanes& l) { store(l.d, median(source(l, 0), source(l, 1), source(l, 2), l.wave->ieee())); }

void v_trunc_f32(Lanes& l) { store(l.d, __builtin_elementwise_trunc(source(l, 0))); }
void v_ceil_f32(Lanes& l) { store(l.d, __builtin_elementwise_ceil(source(l, 0))); }
void v_rndne_f32(Lanes& l) { store(l.d, __builtin_elementwise_roundeven(source(l, 0))); }
void v_floor_f32(Lanes& l) { store(l.d, __builtin_elementwise_floor(source(l, 0))); }

// Below 1 also where x - floor(x) rounds up to it: LLVM selects the instruction for exactly that minimum.
void v_fract_f32(Lanes& l) {
    const f32v a = source(l, 0);
    const f32v fraction = a - __builtin_elementwise_floor(a);
    store(l.d, choose(fraction >= 1.0f, f32v(0x1.fffffep-1f), fraction));
}

void v_frexp_exp_i32_f32(Lanes& l) { store(l.d, exponent_of(source(l, 0))); }
void v_frexp_mant_f32(Lanes& l) { store(l.d, mantissa_of(source(l, 0))); }

// In f64 the product is exact for every exponent that matters, and rounded once on the way back.
void v_ldexp_f32(Lanes& l) {
    i32v exponent = load<i32v>(l.s[1]);
    exponent = __builtin_elementwise_min(__builtin_elementwise_max(exponent, i32v(-400)), i32v(400));
    const f64v wide = __builtin_convertvector(source(l, 0), f64v);
    store(l.d, __builtin_convertvector(wide * power_of_two(__builtin_convertvector(exponent, i64v)), f32v));
}

// Cube maps: which of x, y, z is largest in magnitude (z before y before x) decides the face.
struct Cube {
    f32v x, y, z;
    i32v z_major, y_major;

    explicit Cube(const Lanes& l) : x(source(l, 0)), y(source(l, 1)), z(source(l, 2)) {
        const f32v ax = magnitude(x), ay = magnitude(y), az = magnitude(z);
        z_major = (az >= ax) & (az >= ay);
        y_major = ay >= ax;
    }

    f32v by_axis(f32v if_z, f32v if_y, f32v if_x) const { return choose(z_major, if_z, choose(y_major, if_y, if_x)); }
};

f32v if_negative(f32v value, f32v yes, f32v no) { return choose(value < 0.0f, yes, no); }

void v_cubeid_f32(Lanes& l) {
    const Cube c(l);
    store(
        l.d, c.by_axis(
                 if_negative(c.z, f32v(5.0f), f32v(4.0f)), if_negative(c.y, f32v(3.0f), f32v(2.0f)),
                 if_negative(c.x, f32v(1.0f), f32v(0.0f))));
}

void v_cubesc_f32(Lanes& l) {
    const Cube c(l);
    store(l.d, c.by_axis(if_negative(c.z, -c.x, c.x), c.x, if_negative(c.x, c.z, -c.z)));
}

void v_cubetc_f32(Lanes& l) {
    const Cube c(l);
    store(l.d, c.by_axis(-c.y, if_negative(c.y, -c.z, c.z), -c.y));
}

void v_cubema_f32(Lanes& l) {
    const Cube c(l);
    store(l.d, c.by_axis(c.z, c.y, c.x) * 2.0f);
}

constexpr Row kRows[] = {
    {"v_add_f32", Format::Vop2, 1, "f32=f32,f32", v_add_f32, nullptr, 0, 0},
    {"v_sub_f32", Format::Vop2, 2, "f32=f32,f32", v_sub_f32, nullptr, 0, 0},
    {"v_subrev_f32", Format::Vop2, 3, "f32=f32,f32", v_subrev_f32, nullptr, 0, 0},
    {"v_mul_f32", Format::Vop2, 5, "f32=f32,f32", v_mul_f32, nullptr, 0, 0},
    {"v_min_f32", Format::Vop2, 10, "f32=f32,f32", v_min_f32, nullptr, 0, 0},
    {"v_max_f32", Format::Vop2, 11, "f32=f32,f32", v_max_f32, nullptr, 0, 0},
    {"v_fmamk_f32", Format::Vop2, 23, "f32=f32,k,f32", v_fma_f32, nullptr, 0, 0},
    {"v_fmaak_f32", Format::Vop2, 24, "f32=f32,f32,k", v_fma_f32, nullptr, 0, 0},
    {"v_fmac_f32", Format::Vop2, 59, "f32=f32,f32,d", v_fma_f32, nullptr, 0, 0},
    {"v_fract_f32", Format::Vop1, 27, "f32=f32", v_fract_f32, nullptr, 0, 0},
    {"v_trunc_f32", Format::Vop1, 28, "f32=f32", v_trunc_f32, nullptr, 0, 0},
    {"v_ceil_f32", Format::Vop1, 29, "f32=f32", v_ceil_f32, nullptr, 0, 0},
    {"v_rndne_f32", Format::Vop1, 30, "f32=f32", v_rndne_f32, nullptr, 0, 0},
    {"v_floor_f32", Format::Vop1, 31, "f32=f32", v_floor_f32, nullptr, 0, 0},
    {"v_frexp_exp_i32_f32", Format::Vop1, 51, "i32=f32", v_frexp_exp_i32_f32, nullptr, 0, 0},
    {"v_frexp_mant_f32", Format::Vop1, 52, "f32=f32", v_frexp_mant_f32, nullptr, 0, 0},
    {"v_cubeid_f32", Format::Vop3, 452, "f32=f32,f32,f32", v_cubeid_f32, nullptr, 0, 0},
    {"v_cubesc_f32", Format::Vop3, 453, "f32=f32,f32,f32", v_cubesc_f32, nullptr, 0, 0},
    {"v_cubetc_f32", Format::Vop3, 454, "f32=f32,f32,f32", v_cubetc_f32, nullptr, 0, 0},
    {"v_cubema_f32", Format::Vop3, 455, "f32=f32,f32,f32", v_cubema_f32, nullptr, 0, 0},
    {"v_fma_f32", Format::Vop3, 459, "f32=f32,f32,f32", v_fma_f32, nullptr, 0, 0},
    {"v_min3_f32", Format::Vop3, 464, "f32=f32,f32,f32", v_min3_f32, nullptr, 0, 0},
    {"v_max3_f32", Format::Vop3, 467, "f32=f32,f32,f32", v_max3_f32, nullptr, 0, 0},
    {"v_med3_f32", Format::Vop3, 470, "f32=f32,f32,f32", v_med3_f32, nullptr, 0, 0},
    {"v_ldexp_f32", Format::Vop3, 648, "f32=f32,i32", v_ldexp_f32, nullptr, 0, 0},
    {"v_mul_legacy_f32", Format::Vop3, 673, "f32=f32,f32", v_mul_legacy_f32, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_f32_rows() { return kRows; }

}  // namespace emu
