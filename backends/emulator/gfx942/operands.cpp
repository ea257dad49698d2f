// SPDX-License-Identifier: MIT
// ISA guide, table of scalar operands; which constants a type gets: LLVM's SIDefines.h, operand types.
#include "operands.h"

namespace emu {
namespace {

struct Floats {
    u16 half;
    u16 brain;
    u32 single;
    u64 twice;
};
constexpr Floats kFloats[] = {
    {0x3800, 0x3f00, 0x3f000000, 0x3fe0000000000000},                                                    // 0.5
    {0xb800, 0xbf00, 0xbf000000, 0xbfe0000000000000}, {0x3c00, 0x3f80, 0x3f800000, 0x3ff0000000000000},  // 1
    {0xbc00, 0xbf80, 0xbf800000, 0xbff0000000000000}, {0x4000, 0x4000, 0x40000000, 0x4000000000000000},  // 2
    {0xc000, 0xc000, 0xc0000000, 0xc000000000000000}, {0x4400, 0x4080, 0x40800000, 0x4010000000000000},  // 4
    {0xc400, 0xc080, 0xc0800000, 0xc010000000000000}, {0x3118, 0x3e22, 0x3e22f983, 0x3fc45f306dc9c882},  // 1/(2 pi)
};

u64 twice(u32 value) { return value | u64{value} << 32; }

u64 integer_constant(i64 value, Type type) {
    switch (type) {
        case Type::B16:
        case Type::I16:
        case Type::U16:
        case Type::F16:
        case Type::BF16: return value & 0xffff;
        case Type::B64:
        case Type::I64:
        case Type::U64:
        case Type::F64:
        case Type::Mask: return static_cast<u64>(value);
        case Type::PB32:
        case Type::PF32: return twice(static_cast<u32>(value));
        default: return static_cast<u32>(value);
    }
}

u64 float_constant(const Floats& value, Type type) {
    switch (type) {
        case Type::B16:
        case Type::I16:
        case Type::U16:
        case Type::F16:
        case Type::PF16: return value.half;
        case Type::BF16:
        case Type::PBF16: return value.brain;
        case Type::B64:
        case Type::I64:
        case Type::U64:
        case Type::F64:
        case Type::Mask: return value.twice;
        case Type::PB32:
        case Type::PF32: return twice(value.single);
        default: return value.single;
    }
}

u64 literal_constant(u32 literal, Type type) {
    switch (type) {
        case Type::B16:
        case Type::I16:
        case Type::U16:
        case Type::F16:
        case Type::BF16: return literal & 0xffff;
        case Type::F64: return u64{literal} << 32;
        case Type::I64: return static_cast<u64>(static_cast<i64>(static_cast<i32>(literal)));
        case Type::PB32:
        case Type::PF32: return twice(literal);
        default: return literal;
    }
}

}  // namespace

std::optional<u64> constant_value(u16 code, Type type, u32 literal) {
    constexpr u16 kLastPositive = 192, kLiteral = 255;
    if (code >= kFirstInlineInteger && code <= kLastInlineInteger)
        return integer_constant(code <= kLastPositive ? code - kFirstInlineInteger : kLastPositive - code, type);
    if (code >= kFirstInlineFloat && code <= kLastInlineFloat)
        return float_constant(kFloats[code - kFirstInlineFloat], type);
    if (code == kLiteral) return literal_constant(literal, type);
    return std::nullopt;
}

}  // namespace emu
