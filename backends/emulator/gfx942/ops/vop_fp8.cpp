// SPDX-License-Identifier: MIT
// Conversions with the 8-bit floats of MI300 (FNUZ: float16.h).
//
// One byte or pair is read where SDWA selects it (the caller has moved it down); without SDWA the lowest. Results go
// to a half (op_sel bit 3) or, with stochastic rounding, to a byte (op_sel bits 3:2) of the destination; the rest of it
// stays.
//
// Overflow gives NaN, or the largest number if MODE.FP16_OVFL is set.
#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

bool clamp_overflow(const Lanes& l) { return half_rounding(*l.wave) & kClampOverflow; }

void v_cvt_f32_fp8(Lanes& l) { store(l.d, fp8_to_f32(load<u32v>(l.s[0]))); }
void v_cvt_f32_bf8(Lanes& l) { store(l.d, bf8_to_f32(load<u32v>(l.s[0]))); }

void v_cvt_pk_f32_fp8(Lanes& l) {
    const u32v pair = load<u32v>(l.s[0]);
    store(l.d, fp8_to_f32(pair));
    store(l.d + kLanes, fp8_to_f32(pair >> 8));
}

void v_cvt_pk_f32_bf8(Lanes& l) {
    const u32v pair = load<u32v>(l.s[0]);
    store(l.d, bf8_to_f32(pair));
    store(l.d + kLanes, bf8_to_f32(pair >> 8));
}

void v_cvt_pk_fp8_f32(Lanes& l) {
    const bool clamp = clamp_overflow(l);
    store(l.d, f32_to_fp8(load<f32v>(l.s[0]), clamp) | f32_to_fp8(load<f32v>(l.s[1]), clamp) << 8);
}

void v_cvt_pk_bf8_f32(Lanes& l) {
    const bool clamp = clamp_overflow(l);
    store(l.d, f32_to_bf8(load<f32v>(l.s[0]), clamp) | f32_to_bf8(load<f32v>(l.s[1]), clamp) << 8);
}

void insert_byte(Lanes& l, u32v byte) {
    const u32 shift = 8u * (l.op->inst.op_sel >> 2 & 3u);
    store(l.d, (load<u32v>(l.s[2]) & ~(0xffu << shift)) | byte << shift);
}

// The manual's pseudo-code adds the random bits to the 23-bit mantissa without a carry into the exponent, and then
// rounds to nearest. Read literally, that would halve numbers and be biased; we do what stochastic rounding means, with
// the random bits that it names: carry, and cut off.
void v_cvt_sr_fp8_f32(Lanes& l) {
    insert_byte(l, f32_to_fp8_stochastic(load<f32v>(l.s[0]), load<u32v>(l.s[1]), clamp_overflow(l)));
}

void v_cvt_sr_bf8_f32(Lanes& l) {
    insert_byte(l, f32_to_bf8_stochastic(load<f32v>(l.s[0]), load<u32v>(l.s[1]), clamp_overflow(l)));
}

constexpr Row kRows[] = {
    {"v_cvt_f32_fp8", Format::Vop1, 84, "f32=b32", v_cvt_f32_fp8, nullptr, 0, 0},
    {"v_cvt_f32_bf8", Format::Vop1, 85, "f32=b32", v_cvt_f32_bf8, nullptr, 0, 0},
    {"v_cvt_pk_f32_fp8", Format::Vop1, 86, "pf32=b32", v_cvt_pk_f32_fp8, nullptr, 0, 0},
    {"v_cvt_pk_f32_bf8", Format::Vop1, 87, "pf32=b32", v_cvt_pk_f32_bf8, nullptr, 0, 0},
    {"v_cvt_pk_fp8_f32", Format::Vop3, 674, "b16p=f32,f32", v_cvt_pk_fp8_f32, nullptr, 0, 0},
    {"v_cvt_pk_bf8_f32", Format::Vop3, 675, "b16p=f32,f32", v_cvt_pk_bf8_f32, nullptr, 0, 0},
    {"v_cvt_sr_fp8_f32", Format::Vop3, 676, "b32=f32,b32,d", v_cvt_sr_fp8_f32, nullptr, 0, 0},
    {"v_cvt_sr_bf8_f32", Format::Vop3, 677, "b32=f32,b32,d", v_cvt_sr_bf8_f32, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_fp8_rows() { return kRows; }

}  // namespace emu
