// SPDX-License-Identifier: MIT
// f64 arithmetic, and v_trig_preop_f64, which reads off a piece of 2/pi for argument reduction.
#include <algorithm>

#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

f64v source(const Lanes& l, int i) { return load_f64(l.s[i]); }

void v_add_f64(Lanes& l) { store_f64(l.d, source(l, 0) + source(l, 1)); }
void v_mul_f64(Lanes& l) { store_f64(l.d, source(l, 0) * source(l, 1)); }
void v_fma_f64(Lanes& l) { store_f64(l.d, __builtin_elementwise_fma(source(l, 0), source(l, 1), source(l, 2))); }
void v_min_f64(Lanes& l) { store_f64(l.d, minimum(source(l, 0), source(l, 1), l.wave->ieee())); }
void v_max_f64(Lanes& l) { store_f64(l.d, maximum(source(l, 0), source(l, 1), l.wave->ieee())); }

void v_trunc_f64(Lanes& l) { store_f64(l.d, __builtin_elementwise_trunc(source(l, 0))); }
void v_ceil_f64(Lanes& l) { store_f64(l.d, __builtin_elementwise_ceil(source(l, 0))); }
void v_rndne_f64(Lanes& l) { store_f64(l.d, __builtin_elementwise_roundeven(source(l, 0))); }
void v_floor_f64(Lanes& l) { store_f64(l.d, __builtin_elementwise_floor(source(l, 0))); }

// Below 1 also where x - floor(x) rounds up to it: LLVM selects the instruction for exactly that minimum.
void v_fract_f64(Lanes& l) {
    const f64v a = source(l, 0);
    const f64v fraction = a - __builtin_elementwise_floor(a);
    store_f64(l.d, choose(fraction >= 1.0, f64v(0x1.fffffffffffffp-1), fraction));
}

void v_frexp_exp_i32_f64(Lanes& l) { store(l.d, __builtin_convertvector(exponent_of(source(l, 0)), i32v)); }
void v_frexp_mant_f64(Lanes& l) { store_f64(l.d, mantissa_of(source(l, 0))); }

// In three steps of at most 2^+-1022 or so, of which only the last can round: going down, a step stops short of the
// denormals by the 53 bits of a mantissa, so what it cannot keep is less than half of the smallest denormal.
void v_ldexp_f64(Lanes& l) {
    f64v value = source(l, 0);
    i64v exponent = __builtin_convertvector(load<i32v>(l.s[1]), i64v);
    exponent = __builtin_elementwise_min(__builtin_elementwise_max(exponent, i64v(-2950)), i64v(3060));
    for (int step = 0; step < 2; ++step) {
        const i64v down = exponent < -1022, up = exponent > 1023;
        value *= power_of_two((down & -969) | (up & 1023));
        exponent += (down & 969) - (up & 1023);
    }
    exponent = __builtin_elementwise_min(__builtin_elementwise_max(exponent, i64v(-1022)), i64v(1023));
    store_f64(l.d, value * power_of_two(exponent));
}

// The first 1216 bits of 2/pi's binary fraction.
constexpr u64 kTwoOverPi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};
constexpr int kTwoOverPiBits = 1201;  // as many as the instruction knows

void v_trig_preop_f64(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const int exponent = static_cast<int>(lane64(l.s[0], lane) >> 52 & 0x7ff);
        const int shift = static_cast<int>(l.s[1][lane] & 31) * 53 + std::max(exponent - 1077, 0);
        u64 piece = 0;  // 53 bits from `shift` on
        for (int bit = shift; bit < shift + 53; ++bit) {
            const u64 one = bit < kTwoOverPiBits ? kTwoOverPi[bit / 64] >> (63 - bit % 64) & 1 : 0;
            piece = piece << 1 | one;
        }
        // As large arguments come scaled down by 2^128, what they are multiplied with is scaled up. The scale never
        // leaves the normal range by more than the piece's own 53 bits, so two factors do.
        const int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
        const int half = scale / 2;
        const f64 value = static_cast<f64>(piece) * as_f64(static_cast<u64>(half + 1023) << 52) *
                          as_f64(static_cast<u64>(scale - half + 1023) << 52);
        set_lane64(l.d, lane, as_u64(value));
    }
}

constexpr u32 kRate = kDoubleRate;
constexpr Row kRows[] = {
    {"v_fmac_f64", Format::Vop2, 4, "f64=f64,f64,d", v_fma_f64, nullptr, kRate, 0},
    {"v_trunc_f64", Format::Vop1, 23, "f64=f64", v_trunc_f64, nullptr, kRate, 0},
    {"v_ceil_f64", Format::Vop1, 24, "f64=f64", v_ceil_f64, nullptr, kRate, 0},
    {"v_rndne_f64", Format::Vop1, 25, "f64=f64", v_rndne_f64, nullptr, kRate, 0},
    {"v_floor_f64", Format::Vop1, 26, "f64=f64", v_floor_f64, nullptr, kRate, 0},
    {"v_frexp_exp_i32_f64", Format::Vop1, 48, "i32=f64", v_frexp_exp_i32_f64, nullptr, kRate, 0},
    {"v_frexp_mant_f64", Format::Vop1, 49, "f64=f64", v_frexp_mant_f64, nullptr, kRate, 0},
    {"v_fract_f64", Format::Vop1, 50, "f64=f64", v_fract_f64, nullptr, kRate, 0},
    {"v_fma_f64", Format::Vop3, 460, "f64=f64,f64,f64", v_fma_f64, nullptr, kRate, 0},
    {"v_add_f64", Format::Vop3, 640, "f64=f64,f64", v_add_f64, nullptr, kRate, 0},
    {"v_mul_f64", Format::Vop3, 641, "f64=f64,f64", v_mul_f64, nullptr, kRate, 0},
    {"v_min_f64", Format::Vop3, 642, "f64=f64,f64", v_min_f64, nullptr, kRate, 0},
    {"v_max_f64", Format::Vop3, 643, "f64=f64,f64", v_max_f64, nullptr, kRate, 0},
    {"v_ldexp_f64", Format::Vop3, 644, "f64=f64,i32", v_ldexp_f64, nullptr, kRate, 0},
    {"v_trig_preop_f64", Format::Vop3, 658, "f64=f64,u32", v_trig_preop_f64, nullptr, kRate, 0},
};

}  // namespace

std::span<const Row> vop_f64_rows() { return kRows; }

}  // namespace emu
