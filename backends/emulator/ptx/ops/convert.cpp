// SPDX-License-Identifier: MIT
// cvt. PTX ISA 9.0, section 9.7.9.21.
//
// Through f64, which holds every f32, f16, bf16 and 32-bit integer exactly: one rounding each. 64-bit integers go on their own.
#include <cfenv>
#include <cmath>

#include "forms.h"
#include "half.h"

namespace emu::ptx {
namespace {

enum class Type : u8 { U8, S8, U16, S16, U32, S32, U64, S64, F16, BF16, F32, F64, None };

Type named(std::string_view name) {
    constexpr std::pair<const char*, Type> kNames[] = {
        {"u8", Type::U8},   {"s8", Type::S8},     {"u16", Type::U16}, {"s16", Type::S16},
        {"u32", Type::U32}, {"s32", Type::S32},   {"u64", Type::U64}, {"s64", Type::S64},
        {"f16", Type::F16}, {"bf16", Type::BF16}, {"f32", Type::F32}, {"f64", Type::F64},
        {"b16", Type::U16}, {"b32", Type::U32},   {"b64", Type::U64}, {"b8", Type::U8}};
    for (const auto& [word, type] : kNames)
        if (name == word) return type;
    return Type::None;
}

bool is_float(Type type) { return type >= Type::F16 && type <= Type::F64; }
bool is_signed(Type type) { return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64; }
u32 width(Type type) {
    switch (type) {
        case Type::U8:
        case Type::S8: return 8;
        case Type::U16:
        case Type::S16:
        case Type::F16:
        case Type::BF16: return 16;
        case Type::U64:
        case Type::S64:
        case Type::F64: return 64;
        default: return 32;
    }
}
u32 register_bytes(Type type) { return width(type) == 64 ? 8 : 4; }

// How an Op says what to do: types and rounding in `extra`.
constexpr u32 kSat = 1u << 16, kFtz = 1u << 17, kIntegral = 1u << 18, kRelu = 1u << 19,
              kWideSource = 1u << 20;  // a short integer in a register of 64 bits: its low part counts
Type to_of(const Op& op) { return static_cast<Type>(op.extra & 15); }
Type from_of(const Op& op) { return static_cast<Type>(op.extra >> 4 & 15); }
Round round_of(const Op& op) { return static_cast<Round>(op.extra >> 8 & 3); }

/// Integer of `from` as 64 bits, with its sign.
i64v integer(const Warp& w, const Op& op, Type from) {
    const i32 offset = op.operand[1];
    if (register_bytes(from) == 8) return w.get<i64v>(offset);
    const u32v word = op.extra & kWideSource ? convert<u32v>(w.get<u64v>(offset)) : w.get<u32v>(offset);
    const u32 up = 32 - width(from);
    if (is_signed(from)) return convert<i64v>(bits<i32v>(word << up) >> static_cast<int>(up));
    return convert<i64v>((word << up) >> up);
}

void put_integer(const Warp& w, i32 offset, Type to, i64v value, u32 bytes) {
    if (bytes == 8) {
        // A narrower result in a wider register is extended by its sign.
        const int up = static_cast<int>(64 - width(to));
        w.put<i64v>(
            offset, up == 0         ? value
                    : is_signed(to) ? (value << up) >> up
                                    : bits<i64v>(bits<u64v>(value << up) >> u64{static_cast<u32>(up)}));
        return;
    }
    const u32 up = 32 - std::min(32u, width(to));
    const u32v word = convert<u32v>(bits<u64v>(value));
    // 8-bit results are extended to the register.
    const u32v result = is_signed(to) && width(to) == 8 ? bits<u32v>(bits<i32v>(word << up) >> static_cast<int>(up))
                                                        : (word << up) >> up;
    w.put<u32v>(offset, width(to) == 16 ? result & 0xffffu : result);
}

i64 least_of(Type to) { return is_signed(to) ? -(i64{1} << (width(to) - 1)) : 0; }
u64 most_of(Type to) {
    const u32 w = width(to) - (is_signed(to) ? 1 : 0);
    return w == 64 ? ~u64{0} : (u64{1} << w) - 1;
}

Flow integer_to_integer(Warp& w, const Op& op) {
    const Type to = to_of(op), from = from_of(op);
    i64v value = integer(w, op, from);
    if (op.extra & kSat) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const __int128 x = is_signed(from) || register_bytes(from) == 4
                                   ? static_cast<__int128>(value[lane])
                                   : static_cast<__int128>(static_cast<u64>(value[lane]));
            const __int128 low = least_of(to), high = static_cast<__int128>(most_of(to));
            value[lane] = static_cast<i64>(x < low ? low : x > high ? high : x);
        }
    }
    put_integer(w, op.operand[0], to, value, static_cast<u32>(op.immediate));
    return Flow::Next;
}

f64v number(const Warp& w, i32 offset, Type from, bool ftz) {
    switch (from) {
        case Type::F16: return convert<f64v>(from_f16(w.get<u32v>(offset) & 0xffffu));
        case Type::BF16: return convert<f64v>(from_bf16(w.get<u32v>(offset) & 0xffffu));
        case Type::F32: {
            const f32v value = w.get<f32v>(offset);
            return convert<f64v>(ftz ? flushed(value) : value);
        }
        default: return w.get<f64v>(offset);
    }
}

f64v integral(f64v value, Round round) {
    switch (round) {
        case Round::Nearest: return __builtin_elementwise_roundeven(value);
        case Round::Zero: return __builtin_elementwise_trunc(value);
        case Round::Down: return __builtin_elementwise_floor(value);
        default: return __builtin_elementwise_ceil(value);
    }
}

// Always saturating. NaN gives 0, but the least 64-bit number, and 80000000 for 32 bits from f64 (recorded on an H200).
Flow float_to_integer(Warp& w, const Op& op) {
    const Type to = to_of(op), from = from_of(op);
    const f64v value = integral(number(w, op.operand[1], from, op.extra & kFtz), round_of(op));
    const f64 low = static_cast<f64>(least_of(to)),
              above = std::ldexp(1.0, static_cast<int>(width(to) - (is_signed(to) ? 1 : 0)));
    i64v result = i64v(0);
    for (int lane = 0; lane < kLanes; ++lane) {
        const f64 x = value[lane];
        if (x != x)
            result[lane] = width(to) == 64 || (width(to) == 32 && from == Type::F64)
                               ? static_cast<i64>(u64{1} << (width(to) - 1))
                               : 0;
        else if (x < low) result[lane] = least_of(to);
        else if (x >= above) result[lane] = static_cast<i64>(most_of(to));
        else result[lane] = is_signed(to) ? static_cast<i64>(x) : static_cast<i64>(static_cast<u64>(x));
    }
    put_integer(w, op.operand[0], to, result, static_cast<u32>(op.immediate));
    return Flow::Next;
}

f64v saturated(f64v value) {
    const f64v low = __builtin_elementwise_max(value, f64v(0.0));
    const i64v positive = value > 0.0;
    return bits<f64v>(bits<i64v>(__builtin_elementwise_min(low, f64v(1.0))) & positive);
}

/// f64 to f32 under a rounding mode; exact once.
f32v narrowed(f64v value, Round round) {
    if (round == Round::Nearest) return convert<f32v>(value);
    const int before = std::fegetround();
    std::fesetround(round == Round::Zero ? FE_TOWARDZERO : round == Round::Down ? FE_DOWNWARD : FE_UPWARD);
    asm volatile("" : "+m"(value));
    f32v result = convert<f32v>(value);
    asm volatile("" : "+m"(result));
    std::fesetround(before);
    return result;
}

void put_float(const Warp& w, const Op& op, f64v value) {
    const Type to = to_of(op);
    const Round round = round_of(op);
    if (op.extra & kSat) value = saturated(value);
    switch (to) {
        case Type::F16:
        case Type::BF16: {
            u32v result = to == Type::F16 ? to_f16(value, round) : to_bf16(value, round);
            if (op.extra & kRelu) result = choose<u32v>(convert<i32v>(value <= 0.0), u32v(0u), result);
            w.put<u32v>(op.operand[0], result);
            break;
        }
        case Type::F32: {
            const f32v result = narrowed(value, round);
            w.put<f32v>(op.operand[0], op.extra & kFtz ? flushed(result) : result);
            break;
        }
        default: w.put<f64v>(op.operand[0], value);
    }
}

Flow float_to_float(Warp& w, const Op& op) {
    const Type to = to_of(op), from = from_of(op);
    const i32 source = op.operand[1];
    f64v value = number(w, source, from, op.extra & kFtz);
    // NaNs: sign and upper payload stay between f32 and f64, all others become canonical.
    if (from == Type::F32 && to == Type::F64) {
        const u32v word = w.get<u32v>(source);
        const i32v nan = bits<i32v>((word & 0x7fffffffu) > 0x7f800000u);
        const u64v kept =
            (convert<u64v>(word & 0x80000000u) << 32) | (u64{0x7ff8} << 48) | (convert<u64v>(word & 0x7fffffu) << 29);
        w.put<u64v>(op.operand[0], choose<u64v>(nan, kept, bits<u64v>(value)));
        return Flow::Next;
    }
    if (op.extra & kIntegral) {
        const f64v whole = integral(value, round_of(op));
        value = bits<f64v>(bits<u64v>(whole) | (bits<u64v>(value) & (u64{1} << 63)));
    }
    if (from == Type::F64 && to == Type::F32) {
        const u64v word = w.get<u64v>(source);
        const i32v nan = convert<i32v>(value != value);
        const f32v result = narrowed(value, round_of(op));
        const u32v kept = convert<u32v>(word >> 32 & 0x80000000u) | 0x7fc00000u | convert<u32v>(word >> 29 & 0x3fffffu);
        const f32v number = op.extra & kSat   ? convert<f32v>(saturated(value))
                            : op.extra & kFtz ? flushed(result)
                                              : result;
        w.put<u32v>(op.operand[0], choose<u32v>(op.extra & kSat ? i32v(0) : nan, kept, bits<u32v>(number)));
        return Flow::Next;
    }
    if (from == Type::BF16 && to == Type::F32 && !(op.extra & (kSat | kIntegral))) {
        const f32v result = from_bf16(w.get<u32v>(source) & 0xffffu);
        w.put<f32v>(op.operand[0], op.extra & kFtz ? flushed(result) : result);
        return Flow::Next;
    }
    if (to == Type::F32) {
        f32v result = narrowed(op.extra & kSat ? saturated(value) : value, Round::Nearest);
        if (op.extra & kFtz) result = flushed(result);
        w.put<f32v>(op.operand[0], canonical(result));
        return Flow::Next;
    }
    put_float(w, op, value);
    return Flow::Next;
}

/// An integer of 64 bits to f64 or f32, once rounded.
template <class F>
Flow integer_to(Warp& w, const Op& op) {
    const Type from = from_of(op);
    const i64v value = integer(w, op, from);
    const Round round = round_of(op);
    const int before = std::fegetround();
    std::fesetround(
        round == Round::Zero   ? FE_TOWARDZERO
        : round == Round::Down ? FE_DOWNWARD
        : round == Round::Up   ? FE_UPWARD
                               : FE_TONEAREST);
    F result[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        volatile i64 hidden = value[lane];
        result[lane] = from == Type::U64 ? static_cast<F>(static_cast<u64>(hidden)) : static_cast<F>(hidden);
    }
    std::fesetround(before);
    // Compilers build u64 conversions from subtractions: 0 stays +0.
    for (int lane = 0; lane < kLanes; ++lane)
        if (value[lane] == 0) result[lane] = 0;
    if constexpr (sizeof(F) == 4) {
        f32v lanes;
        std::memcpy(&lanes, result, sizeof lanes);
        w.put<f32v>(op.operand[0], lanes);
    } else {
        f64v lanes;
        std::memcpy(&lanes, result, sizeof lanes);
        w.put<f64v>(op.operand[0], lanes);
    }
    return Flow::Next;
}

Flow integer_to_float(Warp& w, const Op& op) {
    const Type to = to_of(op), from = from_of(op);
    if (to == Type::F64) return integer_to<f64>(w, op);
    if (to == Type::F32) return integer_to<f32>(w, op);
    put_float(w, op, convert<f64v>(integer(w, op, from)));  // up to 32 bits, exact in f64
    return Flow::Next;
}

// ---- pairs: cvt.rn.f16x2.f32 d, a, b puts a into the upper half.

template <bool Brain, bool Relu, Round kRound>
Flow pair_of_short(Warp& w, const Op& op) {
    const auto half = [&](i32 offset) {
        const f32v value = w.get<f32v>(offset);
        const f64v wide = convert<f64v>(value);
        u32v result = Brain ? to_bf16(wide, kRound) : to_f16(wide, kRound);
        if (Relu) result = choose<u32v>(value <= 0.0f, u32v(0u), result);
        return result;
    };
    w.put<u32v>(op.operand[0], half(op.operand[1]) << 16 | half(op.operand[2]));
    return Flow::Next;
}

template <bool E5m2, bool Relu>
Flow pair_of_fp8(Warp& w, const Op& op) {
    const auto one = [&](i32 offset) {
        const f64v value = convert<f64v>(w.get<f32v>(offset));
        const u32v code = to_fp8<E5m2>(value);
        return Relu ? choose<u32v>(convert<i32v>(value <= 0.0), u32v(0u), code) : code;
    };
    w.put<u32v>(op.operand[0], one(op.operand[1]) << 8 | one(op.operand[2]));
    return Flow::Next;
}
template <bool E5m2, bool Relu>
Flow fp8_of_halves(Warp& w, const Op& op) {
    const u32v pair = w.get<u32v>(op.operand[1]);
    const auto one = [&](u32v half) {
        const f64v value = convert<f64v>(from_f16(half));
        const u32v code = to_fp8<E5m2>(value);
        return Relu ? choose<u32v>(convert<i32v>(value <= 0.0), u32v(0u), code) : code;
    };
    w.put<u32v>(op.operand[0], one(pair >> 16) << 8 | one(pair & 0xffffu));
    return Flow::Next;
}
template <bool E5m2, bool Relu>
Flow halves_of_fp8(Warp& w, const Op& op) {
    const u32v pair = w.get<u32v>(op.operand[1]);
    const auto one = [&](u32v code) {
        u32v half;
        if constexpr (E5m2) {
            half = code << 8;
            half = choose<u32v>(bits<i32v>((half & 0x7fffu) > 0x7c00u), u32v(0x7fffu), half);
        } else {
            f32v value;
            for (int lane = 0; lane < kLanes; ++lane) value[lane] = from_e4m3(static_cast<u8>(code[lane]));
            half = to_f16(convert<f64v>(value));
        }
        if (Relu) half = choose<u32v>(bits<i32v>((half & 0x8000u) != 0u), u32v(0u), half);
        return half;
    };
    w.put<u32v>(op.operand[0], one(pair >> 8 & 0xffu) << 16 | one(pair & 0xffu));
    return Flow::Next;
}

// tf32: ten fraction bits. rna adds half a place to the magnitude of finite numbers; NaN becomes 7fffe000 in the others.
template <bool Away, bool Relu, Round kRound>
Flow to_tf32(Warp& w, const Op& op) {
    const f32v value = w.get<f32v>(op.operand[1]);
    const u32v word = bits<u32v>(value);
    u32v result;
    if constexpr (Away) {
        const i32v finite = bits<i32v>((word & 0x7f800000u) != 0x7f800000u);
        result = choose<u32v>(finite, word + 0x1000u, word) & 0xffffe000u;
    } else {
        const u32v half = kRound == Round::Nearest ? 0xfffu + (word >> 13 & 1u) : u32v(0u);
        const i32v special = bits<i32v>((word & 0x7f800000u) == 0x7f800000u);
        result = choose<u32v>(special, word, word + half) & 0xffffe000u;
        result = choose<u32v>(value != value, u32v(0x7fffe000u), result);
    }
    if (Relu) result = choose<u32v>(value <= 0.0f, u32v(0u), result);
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}

// cvt.pack.sat.s8.s32.b32 d, a, b, c: b into the low part, a above it, then the low bits of c.
Flow packed(Warp& w, const Op& op) {
    const Type to = to_of(op);
    const u32 size = width(to);
    const auto cut = [&](i32v value) {
        const i32v low = i32v(static_cast<i32>(least_of(to))), high = i32v(static_cast<i32>(most_of(to)));
        return bits<u32v>(__builtin_elementwise_max(__builtin_elementwise_min(value, high), low)) &
               static_cast<u32>((u64{1} << size) - 1);
    };
    u32v result = cut(w.get<i32v>(op.operand[1])) << size | cut(w.get<i32v>(op.operand[2]));
    if (op.immediate) result |= w.get<u32v>(op.operand[3]) << (2 * size);
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}

bool two_sources(Builder& b, Handler handler) { return set(b, handler, 4, 2); }

bool decode_cvt(Builder& b) {
    const std::string &to_name = b.word(b.words() - 2), &from_name = b.type();
    if (b.word(1) == "pack") {
        const Type part = named(b.word(3));
        if (b.words() < 5 || b.word(4) != "s32" || (width(part) != 8 && width(part) != 16)) return false;
        b.op.extra = static_cast<u32>(part);
        b.op.immediate = b.operands() == 4;
        return set(b, packed, 4, b.operands() - 1);
    }
    const bool relu = b.has("relu");
    const Round round = b.has("rz") || b.has("rzi")   ? Round::Zero
                        : b.has("rm") || b.has("rmi") ? Round::Down
                        : b.has("rp") || b.has("rpi") ? Round::Up
                                                      : Round::Nearest;
    if (to_name == "f16x2" && from_name == "f32") {
        if (b.has("satfinite") || b.operands() != 3) return false;
        return two_sources(
            b, round == Round::Zero
                   ? (relu ? pair_of_short<false, true, Round::Zero> : pair_of_short<false, false, Round::Zero>)
                   : (relu ? pair_of_short<false, true, Round::Nearest> : pair_of_short<false, false, Round::Nearest>));
    }
    if (to_name == "bf16x2" && from_name == "f32") {
        if (b.has("satfinite") || b.operands() != 3) return false;
        return two_sources(
            b, round == Round::Zero
                   ? (relu ? pair_of_short<true, true, Round::Zero> : pair_of_short<true, false, Round::Zero>)
                   : (relu ? pair_of_short<true, true, Round::Nearest> : pair_of_short<true, false, Round::Nearest>));
    }
    if (to_name == "e4m3x2" || to_name == "e5m2x2") {
        const bool wide = to_name == "e5m2x2";
        if (from_name == "f32")
            return two_sources(
                b, wide ? (relu ? pair_of_fp8<true, true> : pair_of_fp8<true, false>)
                        : (relu ? pair_of_fp8<false, true> : pair_of_fp8<false, false>));
        if (from_name == "f16x2")
            return set(
                b,
                wide ? (relu ? fp8_of_halves<true, true> : fp8_of_halves<true, false>)
                     : (relu ? fp8_of_halves<false, true> : fp8_of_halves<false, false>),
                4, 1);
        return false;
    }
    if (to_name == "f16x2" && (from_name == "e4m3x2" || from_name == "e5m2x2")) {
        const bool wide = from_name == "e5m2x2";
        return set(
            b,
            wide ? (relu ? halves_of_fp8<true, true> : halves_of_fp8<true, false>)
                 : (relu ? halves_of_fp8<false, true> : halves_of_fp8<false, false>),
            4, 1);
    }
    if (to_name == "tf32" && from_name == "f32") {
        if (b.has("satfinite")) return false;
        if (b.has("rna"))
            return set(b, relu ? to_tf32<true, true, Round::Nearest> : to_tf32<true, false, Round::Nearest>, 4, 1);
        return set(
            b,
            round == Round::Zero
                ? (relu ? to_tf32<false, true, Round::Zero> : to_tf32<false, false, Round::Zero>)
                : (relu ? to_tf32<false, true, Round::Nearest> : to_tf32<false, false, Round::Nearest>),
            4, 1);
    }
    const Type to = named(to_name), from = named(from_name);
    // A 64-bit integer would be rounded twice on its way to 16 bits.
    if ((to == Type::F16 || to == Type::BF16) && (from == Type::U64 || from == Type::S64)) return false;
    if (to == Type::None || from == Type::None || b.has("satfinite") || b.has("rna") || b.has("rs")) return false;
    b.op.extra = static_cast<u32>(to) | static_cast<u32>(from) << 4 | static_cast<u32>(round) << 8;
    if (b.has("sat")) b.op.extra |= kSat;
    if (b.has("ftz")) b.op.extra |= kFtz;
    if (relu) b.op.extra |= kRelu;
    const bool rounds_to_integer = b.has("rni") || b.has("rzi") || b.has("rmi") || b.has("rpi");
    if (rounds_to_integer) b.op.extra |= kIntegral;
    u32 to_bytes = register_bytes(to), from_bytes = register_bytes(from);
    // A register may be wider than the type.
    const auto widened = [&](size_t i, u32 bytes) {
        const Operand& operand = b.operand(i);
        if (operand.kind != Operand::Kind::Register) return bytes;
        return std::max(bytes, static_cast<u32>(b.function().registers[operand.reg].bytes));
    };
    if (!is_float(to)) to_bytes = widened(0, to_bytes);
    b.op.operand[0] = b.target(0, to_bytes);
    b.op.immediate = to_bytes;
    const u32 given = is_float(from) ? from_bytes : widened(1, from_bytes);
    if (given != from_bytes) b.op.extra |= kWideSource;
    b.op.operand[1] = b.offset(1, given);
    b.op.run = is_float(to) ? (is_float(from) ? float_to_float : integer_to_float)
                            : (is_float(from) ? float_to_integer : integer_to_integer);
    return true;
}

const Decoders kTable{{"cvt", decode_cvt}};

}  // namespace
}  // namespace emu::ptx
