// SPDX-License-Identifier: MIT
// Buffer instructions that convert: MUBUF *_format_* take the format from the buffer resource, MTBUF from the instruction.
//
// Loads know every format of the ISA guide's table. Stores know all but the scaled ones and 10- and 11-bit floats, whose
// rounding is not documented; they stop the kernel by name. Conversions: unorm and snorm are the exact quotient, rounded to
// nearest even; what stores cannot represent is clamped to the nearest value (NaN to 0); floats round to nearest even.
#include <algorithm>
#include <cmath>

#include "../float16.h"
#include "../table.h"
#include "buffer_address.h"

namespace emu {
namespace {

constexpr u32 kNone = 0;
enum Number : u32 { kUnorm, kSnorm, kUscaled, kSscaled, kUint, kSint, kReserved, kFloat };
constexpr const char* kNumberNames[] = {"UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT"};

struct Layout {
    const char* name;  // fields from the highest bits down, as the ISA names them
    u8 bits[4];        // from the lowest bits up: X, Y, Z, W
    u8 bytes;
};
constexpr Layout kLayouts[16] = {
    {"INVALID", {}, 0},
    {"8", {8}, 1},
    {"16", {16}, 2},
    {"8_8", {8, 8}, 2},
    {"32", {32}, 4},
    {"16_16", {16, 16}, 4},
    {"10_11_11", {11, 11, 10}, 4},
    {"11_11_10", {10, 11, 11}, 4},
    {"10_10_10_2", {2, 10, 10, 10}, 4},
    {"2_10_10_10", {10, 10, 10, 2}, 4},
    {"8_8_8_8", {8, 8, 8, 8}, 4},
    {"32_32", {32, 32}, 8},
    {"16_16_16_16", {16, 16, 16, 16}, 8},
    {"32_32_32", {32, 32, 32}, 12},
    {"32_32_32_32", {32, 32, 32, 32}, 16},
    {"RESERVED_15", {}, 0},
};

struct Conversion {
    const Layout* layout;
    Number number;
    u32 select[4];  // 0: 0, 1: 1, 4…7: X…W
    bool half;      // 16-bit data in registers
};

[[noreturn]] void refuse(const Wave& w, const Op& op, const Conversion& c, const char* what) {
    fault(
        w, op,
        std::string("format BUF_DATA_FORMAT_") + c.layout->name + " with BUF_NUM_FORMAT_" + kNumberNames[c.number] +
            " is not supported in " + what);
}

Conversion conversion(const Wave& w, const Op& op, const Buffer& buffer, bool half, bool storing) {
    const bool typed = op.inst.format == Format::Mtbuf;
    Conversion c{
        &kLayouts[typed ? op.inst.dfmt : buffer.data_format],
        static_cast<Number>(typed ? op.inst.nfmt : buffer.number_format),
        {4, 5, 6, 7},
        half};
    if (!typed) std::copy(buffer.select, buffer.select + 4, c.select);
    const char* const what = storing ? "stores" : half ? "16-bit loads" : "loads";
    const u32 widest = std::max({c.layout->bits[0], c.layout->bits[1], c.layout->bits[2]});
    const bool integer = c.number == kUint || c.number == kSint;
    bool known = c.layout->bytes && c.number != kReserved;
    if (widest == 32) known &= c.number == kFloat || (integer && !half);
    if (c.number == kFloat) known &= widest == 32 || widest == 16 || (widest == 11 && !storing);
    if (storing) known &= c.number != kUscaled && c.number != kSscaled;
    if (!known) refuse(w, op, c, what);
    if (storing)
        for (u32 i = 0; i < 4; ++i)
            if (c.layout->bits[i] && c.select[i] != 4 + i) refuse(w, op, c, "stores that permute components");
    return c;
}

/// An f32 that a further rounding to f16 turns into the correctly rounded quotient: inexact results end in a 1.
f32 round_to_odd(f64 value) {
    const f32 nearest = static_cast<f32>(value);
    if (static_cast<f64>(nearest) == value) return nearest;
    const u32 bits = as_u32(nearest) - (std::fabs(static_cast<f64>(nearest)) > std::fabs(value));
    return as_f32(bits | 1);
}

u32 float_result(f64 value, bool half) {
    return half ? f32_to_f16(round_to_odd(value), kToNearestEven) : as_u32(static_cast<f32>(value));
}

/// A component's `bits` bits to what the register gets (16 bits with `half`).
u32 decode(u32 raw, int bits, Number number, bool half) {
    const i64 with_sign = sign_extend(raw, bits);
    const f64 top = static_cast<f64>((u64{1} << bits) - 1), signed_top = static_cast<f64>((u64{1} << (bits - 1)) - 1);
    switch (number) {
        case kUnorm: return float_result(raw / top, half);
        case kSnorm: return float_result(std::max(bits > 1 ? static_cast<f64>(with_sign) / signed_top : 0, -1.0), half);
        case kUscaled: return float_result(raw, half);
        case kSscaled: return float_result(static_cast<f64>(with_sign), half);
        case kSint: return static_cast<u32>(with_sign) & (half ? 0xffffu : ~0u);
        case kFloat: {
            if (bits == 32) return half ? f32_to_f16(as_f32(raw), kToNearestEven) : raw;
            const u16 f16 = static_cast<u16>(raw << (bits < 16 ? 15 - bits : 0));  // 10 and 11 bits have no sign
            return half ? f16 : as_u32(f16_to_f32(f16));
        }
        default: return raw;
    }
}

/// What the register holds (16 bits with `half`) to a component's bits.
u32 encode(u32 value, int bits, Number number, bool half) {
    const u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;
    if (number == kUint) return std::min(value, mask);
    if (number == kSint) {
        const i64 largest = mask >> 1, integer = half ? sign_extend(value, 16) : static_cast<i32>(value);
        return static_cast<u32>(std::clamp(integer, -largest - 1, largest)) & mask;
    }
    if (number == kFloat && bits == (half ? 16 : 32)) return value;
    const f32 x = half ? f16_to_f32(static_cast<u16>(value)) : as_f32(value);
    if (number == kFloat) return bits == 32 ? as_u32(x) : f32_to_f16(x, kToNearestEven);
    if (x != x) return 0;
    const f64 top = number == kUnorm ? mask : mask >> 1;
    const f64 scaled = std::nearbyint(std::clamp(static_cast<f64>(x), number == kUnorm ? 0.0 : -1.0, 1.0) * top);
    return static_cast<u32>(static_cast<i64>(scaled)) & mask;
}

using Element = u32[5];  // as in memory, and a word so that two can always be read

u32 component(const Element& element, int position, int bits) {
    const u64 two = element[position / 32] | u64{element[position / 32 + 1]} << 32;
    return static_cast<u32>(two >> position % 32 & ((u64{1} << bits) - 1));
}

void set_component(Element& element, int position, u32 value) {
    const u64 shifted = u64{value} << position % 32;
    element[position / 32] |= static_cast<u32>(shifted);
    element[position / 32 + 1] |= static_cast<u32>(shifted >> 32);
}

/// Calls move(part, bytes, address, lanes) for each dword of the element, which lie apart in swizzled buffers. An element is
/// in range as a whole or not at all.
template <class Move>
u64 each_part(Wave& w, const Op& op, const BufferAccess& access, u32 bytes, AccessKind kind, Move&& move) {
    alignas(64) u64 address[kLanes];
    u64 lanes = access.lanes(0, bytes, w.exec(), address);
    if (!lanes) return 0;
    if (!access.buffer.swizzled) lanes = global_lanes(w, op, address, lanes, bytes, kind);
    for (u32 part = 0; 4 * part < bytes; ++part) {
        const u32 size = std::min(4u, bytes - 4 * part);
        access.lanes(4 * part, size, lanes, address);
        if (access.buffer.swizzled) lanes = global_lanes(w, op, address, lanes, size, kind);
        move(part, size, address, lanes);
    }
    return lanes;
}

void load_format(Wave& w, const Op& op, int components, Half place, bool half) {
    const BufferAccess access(w, op);
    const Conversion c = conversion(w, op, access.buffer, half, false);
    Element elements[kLanes] = {};
    const u64 lanes = each_part(
        w, op, access, c.layout->bytes, AccessKind::Read, [&](u32 part, u32 size, const u64* address, u64 some) {
        for (u64 rest = some; rest; rest &= rest - 1)
            std::memcpy(&elements[lowest(rest)][part], at(address[lowest(rest)]), size);
    });
    const u32 one = c.number == kUint || c.number == kSint ? 1 : half ? 0x3c00 : 0x3f800000;
    alignas(64) u32 result[4][kLanes];
    for (u64 rest = w.exec(); rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        const bool inside = lanes >> lane & 1;
        u32 value[4] = {0, 0, 0, inside ? one : 0};
        for (int i = 0, position = 0; inside && i < 4 && c.layout->bits[i]; position += c.layout->bits[i++])
            value[i] =
                decode(component(elements[lane], position, c.layout->bits[i]), c.layout->bits[i], c.number, half);
        for (int i = 0; i < components; ++i)
            result[i][lane] = c.select[i] >= 4 ? value[c.select[i] - 4] : c.select[i] == 1 ? one : kNone;
    }
    if (op.inst.lds) {
        alignas(64) u64 from[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) from[lane] = address_of(&result[0][lane]);
        return load_to_lds<Dwords<1>>(w, op, from, w.exec(), w.exec());
    }
    u32* const d = w.v(op.dst.index);
    for (u64 rest = w.exec(); rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        for (int i = 0; i < components; ++i) {
            if (!half) d[i * kLanes + lane] = result[i][lane];
            else if (place == Half::Low) ShortLow::put(d + lane, result[0][lane]);
            else if (place == Half::High) ShortHigh::put(d + lane, result[0][lane]);
            else if (i % 2) d[i / 2 * kLanes + lane] |= result[i][lane] << 16;
            else d[i / 2 * kLanes + lane] = result[i][lane];
        }
    }
}

void store_format(Wave& w, const Op& op, int components, Half place, bool half) {
    const BufferAccess access(w, op);
    const Conversion c = conversion(w, op, access.buffer, half, true);
    const u32* const s = w.v(op.vdata.index);
    Element elements[kLanes] = {};
    for (u64 rest = w.exec(); rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        for (int i = 0, position = 0; i < 4 && c.layout->bits[i]; position += c.layout->bits[i++]) {
            u32 value = 0;  // of components that the instruction does not have
            if (i < components) value = half ? s[i / 2 * kLanes + lane] : s[i * kLanes + lane];
            if (half) value = i % 2 || place == Half::High ? value >> 16 : value & 0xffff;
            set_component(elements[lane], position, encode(value, c.layout->bits[i], c.number, half));
        }
    }
    each_part(w, op, access, c.layout->bytes, AccessKind::Write, [&](u32 part, u32 size, const u64* address, u64 some) {
        for (u64 rest = some; rest; rest &= rest - 1)
            std::memcpy(at(address[lowest(rest)]), &elements[lowest(rest)][part], size);
    });
}

template <int components>
void load(Wave& w, const Op& op) {
    load_format(w, op, components, Half::Neither, false);
}
template <int components, Half place = Half::Neither>
void load_half(Wave& w, const Op& op) {
    load_format(w, op, components, place, true);
}
template <int components>
void store(Wave& w, const Op& op) {
    store_format(w, op, components, Half::Neither, false);
}
template <int components, Half place = Half::Neither>
void store_half(Wave& w, const Op& op) {
    store_format(w, op, components, place, true);
}

#define BOTH(name, opcode, signature, flags, ...)                                       \
    {"buffer_" name, Format::Mubuf, opcode, signature, nullptr, __VA_ARGS__, flags, 0}, \
        {"tbuffer_" name, Format::Mtbuf, opcode, signature, nullptr, __VA_ARGS__, flags, 0}

constexpr Row kRows[] = {
    BOTH("load_format_x", 0, "b32=", kLoad, load<1>),
    BOTH("load_format_xy", 1, "b32x2=", kLoad, load<2>),
    BOTH("load_format_xyz", 2, "b32x3=", kLoad, load<3>),
    BOTH("load_format_xyzw", 3, "b32x4=", kLoad, load<4>),
    BOTH("store_format_x", 4, "=b32", kStore, store<1>),
    BOTH("store_format_xy", 5, "=b32x2", kStore, store<2>),
    BOTH("store_format_xyz", 6, "=b32x3", kStore, store<3>),
    BOTH("store_format_xyzw", 7, "=b32x4", kStore, store<4>),
    BOTH("load_format_d16_x", 8, "b16p=", kLoad, load_half<1, Half::Low>),
    BOTH("load_format_d16_xy", 9, "b32=", kLoad, load_half<2>),
    BOTH("load_format_d16_xyz", 10, "b32x2=", kLoad, load_half<3>),
    BOTH("load_format_d16_xyzw", 11, "b32x2=", kLoad, load_half<4>),
    BOTH("store_format_d16_x", 12, "=b32", kStore, store_half<1>),
    BOTH("store_format_d16_xy", 13, "=b32", kStore, store_half<2>),
    BOTH("store_format_d16_xyz", 14, "=b32x2", kStore, store_half<3>),
    BOTH("store_format_d16_xyzw", 15, "=b32x2", kStore, store_half<4>),
    {"buffer_load_format_d16_hi_x", Format::Mubuf, 38, "b16p=", nullptr, load_half<1, Half::High>, kLoad, 0},
    {"buffer_store_format_d16_hi_x", Format::Mubuf, 39, "=b32", nullptr, store_half<1, Half::High>, kStore, 0},
};

}  // namespace

std::span<const Row> buffer_format_rows() { return kRows; }

}  // namespace emu
