// SPDX-License-Identifier: MIT
// Conversions between integers and floats, between floats, and into packed pairs.
//
// To an integer: towards zero unless the name says otherwise, out of range to the nearest limit, NaN to 0.
// From an integer or to a shorter float: rounded as MODE says.
#include "../table.h"
#include "float_lanes.h"

namespace emu {
namespace {

f32v f32_source(const Lanes& l, int i = 0) { return load<f32v>(l.s[i]); }
f64v f64_source(const Lanes& l, int i = 0) { return load_f64(l.s[i]); }
f32v f16_source(const Lanes& l, int i = 0) { return f16_to_f32(load<u32v>(l.s[i])); }

template <class To, class From>
To convert(From value) {
    return __builtin_convertvector(value, To);
}

// A comparison of f64 lanes, as one of 32-bit lanes.
i32v narrow(i64v condition) { return convert<i32v>(condition); }
i32v narrow(i32v condition) { return condition; }

/// Saturating; `low` and `high` are the limits, `above` is the first number past `high`. The C++ conversion only sees
/// values that are in range.
template <class Integer, class Float, class Value>
Integer saturate(Float value, Value low, Value above, Integer least, Integer most) {
    const auto in_range = (value > low - 1) & (value < above);
    Integer result = convert<Integer>(choose(in_range, value, Float(0)));
    result = choose(narrow(value >= above), most, result);
    return choose(narrow(value <= low - 1), least, result);
}

i32v to_i32(f32v value) {
    // -2^31 - 1 is no f32; the limit itself converts to the same.
    const i32v in_range = (value >= -0x1p31f) & (value < 0x1p31f);
    const i32v result = convert<i32v>(choose(in_range, value, f32v(0.0f)));
    const i32v upper = choose(value >= 0x1p31f, i32v(INT32_MAX), result);
    return choose(value < -0x1p31f, i32v(INT32_MIN), upper);
}

u32v to_u32(f32v value) { return saturate(value, 0.0f, 0x1p32f, u32v(0u), u32v(UINT32_MAX)); }
i32v to_i32(f64v value) { return saturate(value, -0x1p31, 0x1p31, i32v(INT32_MIN), i32v(INT32_MAX)); }
u32v to_u32(f64v value) { return saturate(value, 0.0, 0x1p32, u32v(0u), u32v(UINT32_MAX)); }

void v_cvt_i32_f64(Lanes& l) { store(l.d, to_i32(f64_source(l))); }
void v_cvt_u32_f64(Lanes& l) { store(l.d, to_u32(f64_source(l))); }
void v_cvt_i32_f32(Lanes& l) { store(l.d, to_i32(f32_source(l))); }
void v_cvt_u32_f32(Lanes& l) { store(l.d, to_u32(f32_source(l))); }
void v_cvt_rpi_i32_f32(Lanes& l) { store(l.d, to_i32(__builtin_elementwise_floor(f32_source(l) + 0.5f))); }
void v_cvt_flr_i32_f32(Lanes& l) { store(l.d, to_i32(__builtin_elementwise_floor(f32_source(l)))); }

/// From two halves, which the signed conversion takes exactly: one addition rounds. Where the CPU has no instruction
/// for unsigned numbers, compilers subtract, and 0 becomes -0 when MODE rounds down.
template <class Float>
Float from_unsigned(u32v value) {
    const i32v high = std::bit_cast<i32v>(value >> 16);
    const i32v low = std::bit_cast<i32v>(value & 0xffffu);
    return convert<Float>(high) * 65536 + convert<Float>(low);
}

void v_cvt_f64_i32(Lanes& l) { store_f64(l.d, convert<f64v>(load<i32v>(l.s[0]))); }
void v_cvt_f64_u32(Lanes& l) { store_f64(l.d, from_unsigned<f64v>(load<u32v>(l.s[0]))); }
void v_cvt_f32_i32(Lanes& l) { store(l.d, convert<f32v>(load<i32v>(l.s[0]))); }
void v_cvt_f32_u32(Lanes& l) { store(l.d, from_unsigned<f32v>(load<u32v>(l.s[0]))); }
void v_cvt_f64_f32(Lanes& l) { store_f64(l.d, convert<f64v>(f32_source(l))); }
void v_cvt_f32_f64(Lanes& l) { store(l.d, convert<f32v>(f64_source(l))); }

void v_cvt_f16_f32(Lanes& l) { store(l.d, f32_to_f16(f32_source(l), half_rounding(*l.wave))); }
void v_cvt_f32_f16(Lanes& l) { store(l.d, f16_source(l)); }

template <int kByte>
void v_cvt_f32_ubyte(Lanes& l) {
    const u32v byte = (load<u32v>(l.s[0]) >> (8 * kByte)) & 0xffu;
    store(l.d, convert<f32v>(std::bit_cast<i32v>(byte)));
}

// Four bits, signed, in sixteenths: what interpolation at sample positions needs.
void v_cvt_off_f32_i4(Lanes& l) {
    const i32v offset = std::bit_cast<i32v>(load<u32v>(l.s[0]) << 28) >> 28;
    store(l.d, convert<f32v>(offset) * 0.0625f);
}

void v_cvt_f16_u16(Lanes& l) {
    const u32v value = load<u32v>(l.s[0]) & 0xffffu;
    store(l.d, f32_to_f16(convert<f32v>(std::bit_cast<i32v>(value)), half_rounding(*l.wave)));
}

void v_cvt_f16_i16(Lanes& l) {
    const i32v value = std::bit_cast<i32v>(load<u32v>(l.s[0]) << 16) >> 16;
    store(l.d, f32_to_f16(convert<f32v>(value), half_rounding(*l.wave)));
}

template <class T>
T clamp(T value, T low, T high) {
    return __builtin_elementwise_min(__builtin_elementwise_max(value, low), high);
}

u32v clamp_to_i16(i32v value) { return std::bit_cast<u32v>(clamp(value, i32v(-32768), i32v(32767))) & 0xffffu; }

void v_cvt_u16_f16(Lanes& l) { store(l.d, __builtin_elementwise_min(to_u32(f16_source(l)), u32v(0xffffu))); }
void v_cvt_i16_f16(Lanes& l) { store(l.d, clamp_to_i16(to_i32(f16_source(l)))); }

// Normalised: -1..1 (or 0..1) to the integer's range, to nearest, ties to even. In f64 the product is exact.
u32v normalised(f32v value, f64 low, f64 scale) {
    const f64v wide = convert<f64v>(choose(value == value, value, f32v(0.0f)));
    const f64v scaled = __builtin_elementwise_roundeven(clamp(wide, f64v(low), f64v(1.0)) * scale);
    return std::bit_cast<u32v>(convert<i32v>(scaled)) & 0xffffu;
}

u32v snorm16(f32v value) { return normalised(value, -1.0, 32767.0); }
u32v unorm16(f32v value) { return normalised(value, 0.0, 65535.0); }

void v_cvt_norm_i16_f16(Lanes& l) { store(l.d, snorm16(f16_source(l))); }
void v_cvt_norm_u16_f16(Lanes& l) { store(l.d, unorm16(f16_source(l))); }

void pack(Lanes& l, u32v low, u32v high) { store(l.d, low | high << 16); }

void v_cvt_pknorm_i16_f32(Lanes& l) { pack(l, snorm16(f32_source(l)), snorm16(f32_source(l, 1))); }
void v_cvt_pknorm_u16_f32(Lanes& l) { pack(l, unorm16(f32_source(l)), unorm16(f32_source(l, 1))); }
void v_cvt_pknorm_i16_f16(Lanes& l) { pack(l, snorm16(f16_source(l)), snorm16(f16_source(l, 1))); }
void v_cvt_pknorm_u16_f16(Lanes& l) { pack(l, unorm16(f16_source(l)), unorm16(f16_source(l, 1))); }

// Always towards zero.
void v_cvt_pkrtz_f16_f32(Lanes& l) {
    const unsigned rounding = kTowardZero | (half_rounding(*l.wave) & kClampOverflow);
    pack(l, f32_to_f16(f32_source(l), rounding), f32_to_f16(f32_source(l, 1), rounding));
}

void v_cvt_pk_u16_u32(Lanes& l) {
    pack(
        l, __builtin_elementwise_min(load<u32v>(l.s[0]), u32v(0xffffu)),
        __builtin_elementwise_min(load<u32v>(l.s[1]), u32v(0xffffu)));
}

void v_cvt_pk_i16_i32(Lanes& l) { pack(l, clamp_to_i16(load<i32v>(l.s[0])), clamp_to_i16(load<i32v>(l.s[1]))); }

// Byte S1[1:0] of a word becomes S0 as an unsigned byte, rounded as MODE says; the word is S2, or what is in the
// destination.
void v_cvt_pk_u8_f32(Lanes& l) {
    const f32v value = f32_source(l);
    const f32v rounded = __builtin_elementwise_rint(choose(value == value, value, f32v(0.0f)));
    const u32v byte = std::bit_cast<u32v>(convert<i32v>(clamp(rounded, f32v(0.0f), f32v(255.0f))));
    const u32v shift = (load<u32v>(l.s[1]) & 3u) * 8u;
    store(l.d, (load<u32v>(l.s[2]) & ~(u32v(0xffu) << shift)) | byte << shift);
}

constexpr Row kRows[] = {
    {"v_cvt_i32_f64", Format::Vop1, 3, "i32=f64", v_cvt_i32_f64, nullptr, kDoubleRate, 0},
    {"v_cvt_f64_i32", Format::Vop1, 4, "f64=i32", v_cvt_f64_i32, nullptr, kDoubleRate, 0},
    {"v_cvt_f32_i32", Format::Vop1, 5, "f32=i32", v_cvt_f32_i32, nullptr, 0, 0},
    {"v_cvt_f32_u32", Format::Vop1, 6, "f32=u32", v_cvt_f32_u32, nullptr, 0, 0},
    {"v_cvt_u32_f32", Format::Vop1, 7, "u32=f32", v_cvt_u32_f32, nullptr, 0, 0},
    {"v_cvt_i32_f32", Format::Vop1, 8, "i32=f32", v_cvt_i32_f32, nullptr, 0, 0},
    {"v_cvt_f16_f32", Format::Vop1, 10, "f16=f32", v_cvt_f16_f32, nullptr, 0, 0},
    {"v_cvt_f32_f16", Format::Vop1, 11, "f32=f16", v_cvt_f32_f16, nullptr, 0, 0},
    {"v_cvt_rpi_i32_f32", Format::Vop1, 12, "i32=f32", v_cvt_rpi_i32_f32, nullptr, 0, 0},
    {"v_cvt_flr_i32_f32", Format::Vop1, 13, "i32=f32", v_cvt_flr_i32_f32, nullptr, 0, 0},
    {"v_cvt_off_f32_i4", Format::Vop1, 14, "f32=u32", v_cvt_off_f32_i4, nullptr, 0, 0},
    {"v_cvt_f32_f64", Format::Vop1, 15, "f32=f64", v_cvt_f32_f64, nullptr, kDoubleRate, 0},
    {"v_cvt_f64_f32", Format::Vop1, 16, "f64=f32", v_cvt_f64_f32, nullptr, kDoubleRate, 0},
    {"v_cvt_f32_ubyte0", Format::Vop1, 17, "f32=u32", v_cvt_f32_ubyte<0>, nullptr, 0, 0},
    {"v_cvt_f32_ubyte1", Format::Vop1, 18, "f32=u32", v_cvt_f32_ubyte<1>, nullptr, 0, 0},
    {"v_cvt_f32_ubyte2", Format::Vop1, 19, "f32=u32", v_cvt_f32_ubyte<2>, nullptr, 0, 0},
    {"v_cvt_f32_ubyte3", Format::Vop1, 20, "f32=u32", v_cvt_f32_ubyte<3>, nullptr, 0, 0},
    {"v_cvt_u32_f64", Format::Vop1, 21, "u32=f64", v_cvt_u32_f64, nullptr, kDoubleRate, 0},
    {"v_cvt_f64_u32", Format::Vop1, 22, "f64=u32", v_cvt_f64_u32, nullptr, kDoubleRate, 0},
    {"v_cvt_f16_u16", Format::Vop1, 57, "f16=u16", v_cvt_f16_u16, nullptr, 0, 0},
    {"v_cvt_f16_i16", Format::Vop1, 58, "f16=i16", v_cvt_f16_i16, nullptr, 0, 0},
    {"v_cvt_u16_f16", Format::Vop1, 59, "u16=f16", v_cvt_u16_f16, nullptr, 0, 0},
    {"v_cvt_i16_f16", Format::Vop1, 60, "i16=f16", v_cvt_i16_f16, nullptr, 0, 0},
    {"v_cvt_norm_i16_f16", Format::Vop1, 77, "i16=f16", v_cvt_norm_i16_f16, nullptr, 0, 0},
    {"v_cvt_norm_u16_f16", Format::Vop1, 78, "u16=f16", v_cvt_norm_u16_f16, nullptr, 0, 0},
    {"v_cvt_pk_u8_f32", Format::Vop3, 477, "b32=f32,u32,b32", v_cvt_pk_u8_f32, nullptr, 0, 0},
    {"v_cvt_pkaccum_u8_f32", Format::Vop3, 496, "b32=f32,u32,d", v_cvt_pk_u8_f32, nullptr, 0, 0},
    {"v_cvt_pknorm_i16_f32", Format::Vop3, 660, "b32=f32,f32", v_cvt_pknorm_i16_f32, nullptr, 0, 0},
    {"v_cvt_pknorm_u16_f32", Format::Vop3, 661, "b32=f32,f32", v_cvt_pknorm_u16_f32, nullptr, 0, 0},
    {"v_cvt_pkrtz_f16_f32", Format::Vop3, 662, "pf16=f32,f32", v_cvt_pkrtz_f16_f32, nullptr, 0, 0},
    {"v_cvt_pk_u16_u32", Format::Vop3, 663, "b32=u32,u32", v_cvt_pk_u16_u32, nullptr, 0, 0},
    {"v_cvt_pk_i16_i32", Format::Vop3, 664, "b32=i32,i32", v_cvt_pk_i16_i32, nullptr, 0, 0},
    {"v_cvt_pknorm_i16_f16", Format::Vop3, 665, "b32=f16,f16", v_cvt_pknorm_i16_f16, nullptr, 0, 0},
    {"v_cvt_pknorm_u16_f16", Format::Vop3, 666, "b32=f16,f16", v_cvt_pknorm_u16_f16, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_convert_rows() { return kRows; }

}  // namespace emu
