// SPDX-License-Identifier: MIT
// Logic, shifts, bit fields and counts of bits. PTX ISA 9.0, sections 9.7.1, 9.7.8 and 9.7.9.
#include "forms.h"

namespace emu::ptx {
namespace {

constexpr auto band = [](auto a, auto b) { return a & b; };
constexpr auto bor = [](auto a, auto b) { return a | b; };
constexpr auto bxor = [](auto a, auto b) { return a ^ b; };
constexpr auto bnot = [](auto a) { return ~a; };

constexpr u32 width_of(std::string_view type) { return type.ends_with("64") ? 64 : type.ends_with("16") ? 16 : 32; }

// Shifts by the width or more give 0, or the sign in all bits.
template <class T, u32 Width>
Flow shift_left(Warp& w, const Op& op) {
    const u32v by = w.get<u32v>(op.operand[2]);
    const auto value = T::get(w, op.operand[1]);
    using V = typename T::V;
    V amount;
    if constexpr (T::kBytes == 8) amount = convert<V>(by);
    else amount = bits<V>(by);
    T::put(w, op.operand[0], choose<V>(bits<i32v>(by < Width), value << (amount & static_cast<int>(Width - 1)), V(0)));
    return Flow::Next;
}
template <class T, u32 Width>
Flow shift_right(Warp& w, const Op& op) {
    const u32v by = w.get<u32v>(op.operand[2]);
    const auto value = T::get(w, op.operand[1]);
    using V = typename T::V;
    const u32v within = __builtin_elementwise_min(by, u32v(Width - 1));
    V amount;
    if constexpr (T::kBytes == 8) amount = convert<V>(within);
    else amount = bits<V>(within);
    V result = value >> amount;
    if constexpr (std::is_unsigned_v<std::remove_reference_t<decltype(value[0])>>)
        result = choose<V>(bits<i32v>(by < Width), result, V(0));
    T::put(w, op.operand[0], result);
    return Flow::Next;
}

template <class T> struct AndMaker {
    static Handler handler() { return binary<T, band>; }
};
template <class T> struct OrMaker {
    static Handler handler() { return binary<T, bor>; }
};
template <class T> struct XorMaker {
    static Handler handler() { return binary<T, bxor>; }
};
template <class T> struct NotMaker {
    static Handler handler() { return unary<T, bnot>; }
};

enum class Predicates : u8 { And, Or, Xor, Not };
template <Predicates Kind>
Flow predicate_logic(Warp& w, const Op& op) {
    const u32 a = w.predicate(op.operand[1]);
    const u32 b = Kind == Predicates::Not ? 0 : w.predicate(op.operand[2]);
    w.put_predicate(
        op.operand[0], Kind == Predicates::And   ? a & b
                       : Kind == Predicates::Or  ? a | b
                       : Kind == Predicates::Xor ? a ^ b
                                                 : ~a);
    return Flow::Next;
}

template <template <class> class Make, Predicates Kind, size_t Sources>
bool logic(Builder& b) {
    if (b.type() == "pred") return set(b, predicate_logic<Kind>, 0, Sources);
    const Handler handler = integer_handler<Make>(b.type());
    return handler && set(b, handler, integer_bytes(b.type()), Sources);
}

bool shift(Builder& b, Handler handler) {
    const u32 bytes = integer_bytes(b.type());
    b.op.run = handler;
    b.op.operand[0] = b.target(0, bytes);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, 4);
    return true;
}

bool left(Builder& b) {
    switch (width_of(b.type())) {
        case 64: return shift(b, shift_left<U64, 64>);
        case 16: return shift(b, shift_left<U16, 16>);
        default: return shift(b, shift_left<U32, 32>);
    }
}

bool right(Builder& b) {
    const bool is_signed = b.type()[0] == 's';
    switch (width_of(b.type())) {
        case 64: return shift(b, is_signed ? shift_right<S64, 64> : shift_right<U64, 64>);
        case 16: return shift(b, is_signed ? shift_right<S16, 16> : shift_right<U16, 16>);
        default: return shift(b, is_signed ? shift_right<S32, 32> : shift_right<U32, 32>);
    }
}

// shf.l/r.wrap/clamp.b32 d, a, b, c: of the pair {b, a}.
template <bool Left, bool Clamp>
Flow funnel(Warp& w, const Op& op) {
    const u32v low = w.get<u32v>(op.operand[1]), up = w.get<u32v>(op.operand[2]), by = w.get<u32v>(op.operand[3]);
    const u32v n = Clamp ? __builtin_elementwise_min(by, u32v(32)) : by & 31u;
    const u64v pair = convert<u64v>(up) << 32 | convert<u64v>(low);
    w.put<u32v>(
        op.operand[0],
        Left ? convert<u32v>((pair << convert<u64v>(n)) >> 32) : convert<u32v>(pair >> convert<u64v>(n)));
    return Flow::Next;
}

bool shift_funnel(Builder& b) {
    const bool left_form = b.has("l"), clamp = b.has("clamp");
    return set(
        b,
        left_form ? (clamp ? funnel<true, true> : funnel<true, false>)
                  : (clamp ? funnel<false, true> : funnel<false, false>),
        4, 3);
}

// lop3: one truth table for three inputs.
Flow lop3(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]), c = w.get<u32v>(op.operand[3]);
    u32v result = 0u;
    for (u32 row = 0; row < 8; ++row)
        if (op.immediate >> row & 1) result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}

bool logic3(Builder& b) {
    if (b.operands() != 5 || b.operand(4).kind != Operand::Kind::Number) return false;
    b.op.immediate = static_cast<i64>(b.operand(4).value);
    b.op.run = lop3;
    b.op.operand[0] = b.target(0, 4);
    for (size_t i = 1; i <= 3; ++i) b.op.operand[i] = b.offset(i, 4);
    return true;
}

// prmt: bytes of {b, a} by four selectors of four bits; the top one repeats the byte's sign.
Flow permute(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]), selectors = w.get<u32v>(op.operand[3]);
    const u64v pair = convert<u64v>(b) << 32 | convert<u64v>(a);
    u32v result = 0u;
    for (u32 i = 0; i < 4; ++i) {
        const u32v selector = (selectors >> (4 * i)) & 0xfu;
        const u32v byte = convert<u32v>(pair >> (convert<u64v>(selector & 7u) * 8)) & 0xffu;
        const u32v sign = bits<u32v>(bits<i32v>(byte << 24) >> 31) & 0xffu;
        result |= choose<u32v>(bits<i32v>(selector > 7u), sign, byte) << (8 * i);
    }
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}

// The named modes select by the lowest two bits of c. PTX ISA 9.0, section 9.7.9.7, table of prmt's modes.
constexpr u32 kModes[6][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
};

Flow permute_mode(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]), mode = w.get<u32v>(op.operand[3]);
    u32v result = a;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 selectors = kModes[op.extra][mode[lane] & 3];
        const u64 pair = u64{b[lane]} << 32 | a[lane];
        u32 word = 0;
        for (u32 i = 0; i < 4; ++i)
            word |= static_cast<u32>(pair >> (8 * (selectors >> (4 * i) & 7)) & 0xff) << (8 * i);
        result[lane] = word;
    }
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}

bool permute_bytes(Builder& b) {
    constexpr const char* kNames[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    for (u32 i = 0; i < 6; ++i)
        if (b.has(kNames[i])) {
            b.op.extra = i;
            return set(b, permute_mode, 4, 3);
        }
    return set(b, permute, 4, 3);
}

/// Position or length of a field: a byte for 32-bit values, all of the operand for 64-bit ones (recorded on an H200).
template <u32 Width>
u32 field(u32 value) {
    return Width == 32 ? value & 0xff : std::min(value, 255u);
}

// bfe: position and length of a field. Bits above the value are its sign, or 0.
template <class T>
Flow extract(Warp& w, const Op& op) {
    using V = typename T::V;
    using E = std::remove_cvref_t<decltype(V{}[0])>;
    constexpr u32 kWidth = 8 * T::kBytes;
    const V a = T::get(w, op.operand[1]);
    const u32v at = w.get<u32v>(op.operand[2]), length = w.get<u32v>(op.operand[3]);
    V result = a;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 position = field<kWidth>(at[lane]), count = field<kWidth>(length[lane]);
        using Unsigned = std::make_unsigned_t<E>;
        const u32 top = std::min(position + count - 1, kWidth - 1);
        const bool sign = std::is_signed_v<E> && count && (static_cast<Unsigned>(a[lane]) >> top & 1);
        Unsigned value = position < kWidth ? static_cast<Unsigned>(a[lane]) >> position : 0;
        const u32 present = count == 0 ? 0 : position < kWidth ? std::min(count, kWidth - position) : 0;
        const Unsigned mask = present >= kWidth ? ~Unsigned{0} : (Unsigned{1} << present) - 1;
        value &= mask;
        if (sign) value |= ~mask;
        result[lane] = static_cast<E>(value);
    }
    T::put(w, op.operand[0], result);
    return Flow::Next;
}

bool bit_extract(Builder& b) {
    const u32 bytes = integer_bytes(b.type());
    b.op.run = b.type() == "u32"   ? extract<U32>
               : b.type() == "s32" ? extract<S32>
               : b.type() == "u64" ? extract<U64>
                                   : extract<S64>;
    b.op.operand[0] = b.target(0, bytes);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, 4);
    b.op.operand[3] = b.offset(3, 4);
    return true;
}

// bfi f, a, b, position, length: a goes into b.
template <class T>
Flow place_field(Warp& w, const Op& op) {
    using V = typename T::V;
    using E = std::remove_cvref_t<decltype(V{}[0])>;
    constexpr u32 kWidth = 8 * T::kBytes;
    const V a = T::get(w, op.operand[1]), b = T::get(w, op.operand[2]);
    const u32v at = w.get<u32v>(op.operand[3]), length = w.get<u32v>(op.operand[4]);
    V result = b;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 position = field<kWidth>(at[lane]), count = field<kWidth>(length[lane]);
        if (position >= kWidth || !count) continue;
        const E ones = count >= kWidth ? ~E{0} : (E{1} << count) - 1;
        const E mask = ones << position;
        result[lane] = (b[lane] & ~mask) | (a[lane] << position & mask);
    }
    T::put(w, op.operand[0], result);
    return Flow::Next;
}

bool bit_insert(Builder& b) {
    const u32 bytes = integer_bytes(b.type());
    b.op.run = bytes == 8 ? place_field<U64> : place_field<U32>;
    b.op.operand[0] = b.target(0, bytes);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, bytes);
    b.op.operand[3] = b.offset(3, 4);
    b.op.operand[4] = b.offset(4, 4);
    return true;
}

// popc, clz, brev, bfind: results of the first two and the last are 32 bits.
template <class T, auto F>
Flow count(Warp& w, const Op& op) {
    const auto a = T::get(w, op.operand[1]);
    u32v result = 0u;
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = static_cast<u32>(F(a[lane]));
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}
constexpr auto ones = [](auto x) { return std::popcount(x); };
constexpr auto zeros = [](auto x) { return std::countl_zero(x); };
template <bool Amount>
constexpr auto highest = [](auto x) {
    using Unsigned = std::make_unsigned_t<decltype(x)>;
    auto value = static_cast<Unsigned>(x);
    if (std::is_signed_v<decltype(x)> && x < 0) value = static_cast<Unsigned>(~value);
    if (!value) return ~u32{0};
    const u32 shift = static_cast<u32>(std::countl_zero(value));
    return Amount ? shift : static_cast<u32>(8 * sizeof x) - 1 - shift;
};

template <auto F>
bool counting(Builder& b) {
    const bool wide = b.type().ends_with("64");
    b.op.run = wide ? count<U64, F> : count<U32, F>;
    b.op.operand[0] = b.target(0, 4);
    b.op.operand[1] = b.offset(1, wide ? 8 : 4);
    return true;
}

bool find_highest(Builder& b) {
    const std::string& type = b.type();
    const bool amount = b.has("shiftamt");
    b.op.run = type == "u32"   ? (amount ? count<U32, highest<true>> : count<U32, highest<false>>)
               : type == "s32" ? (amount ? count<S32, highest<true>> : count<S32, highest<false>>)
               : type == "u64" ? (amount ? count<U64, highest<true>> : count<U64, highest<false>>)
                               : (amount ? count<S64, highest<true>> : count<S64, highest<false>>);
    b.op.operand[0] = b.target(0, 4);
    b.op.operand[1] = b.offset(1, integer_bytes(type));
    return true;
}

constexpr auto reversed = [](auto a) {
    auto result = a;
    for (int lane = 0; lane < kLanes; ++lane)
        result[lane] = __builtin_bitreverse64(a[lane]) >> (64 - 8 * sizeof a[lane]);
    return result;
};

bool bit_reverse(Builder& b) {
    const bool wide = b.type().ends_with("64");
    return set(b, wide ? unary<U64, reversed> : unary<U32, reversed>, wide ? 8 : 4, 1);
}

// bmsk d, position, width; szext d, a, width: `wrap` takes both modulo 32, `clamp` lets them be larger.
template <bool Wrap>
Flow mask_of_bits(Warp& w, const Op& op) {
    const u32v position = w.get<u32v>(op.operand[1]), width = w.get<u32v>(op.operand[2]);
    u32v result = 0u;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 at = Wrap ? position[lane] & 31 : position[lane], count = Wrap ? width[lane] & 31 : width[lane];
        const u32 ones = count >= 32 ? ~0u : (1u << count) - 1;
        result[lane] = at >= 32 ? 0 : ones << at;
    }
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}
bool decode_bmsk(Builder& b) { return set(b, b.has("wrap") ? mask_of_bits<true> : mask_of_bits<false>, 4, 2); }

template <bool Wrap, bool Signed>
Flow extended(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), width = w.get<u32v>(op.operand[2]);
    u32v result = 0u;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 count = Wrap ? width[lane] & 31 : width[lane];
        const u32 up = 32 - count;
        result[lane] = count >= 32 ? a[lane]
                       : !count    ? 0
                       : Signed    ? static_cast<u32>(static_cast<i32>(a[lane] << up) >> up)
                                   : a[lane] << up >> up;
    }
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}
bool decode_szext(Builder& b) {
    const bool is_signed = b.type() == "s32", wrap = b.has("wrap");
    return set(
        b,
        wrap ? (is_signed ? extended<true, true> : extended<true, false>)
             : (is_signed ? extended<false, true> : extended<false, false>),
        4, 2);
}

// fns d, mask, base, n: the n-th set bit from base upwards (n > 0), downwards (n < 0), or base itself.
Flow nth_set(Warp& w, const Op& op) {
    const u32v mask = w.get<u32v>(op.operand[1]), base = w.get<u32v>(op.operand[2]);
    const i32v offset = w.get<i32v>(op.operand[3]);
    u32v result = 0u;
    for (int lane = 0; lane < kLanes; ++lane) {
        u32 found = ~0u;
        const i64 step = offset[lane] < 0 ? -1 : 1;
        i64 left = offset[lane] < 0 ? -i64{offset[lane]} : offset[lane];
        i64 at = base[lane];
        if (left == 0) {
            if (at < 32 && (mask[lane] >> at & 1)) found = base[lane];
        } else {
            for (; at >= 0 && at < 32; at += step)
                if ((mask[lane] >> at & 1) && --left == 0) {
                    found = static_cast<u32>(at);
                    break;
                }
        }
        result[lane] = found;
    }
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}
bool decode_fns(Builder& b) { return set(b, nth_set, 4, 3); }

const Decoders kTable{
    {"and", logic<AndMaker, Predicates::And, 2>},
    {"or", logic<OrMaker, Predicates::Or, 2>},
    {"xor", logic<XorMaker, Predicates::Xor, 2>},
    {"not", logic<NotMaker, Predicates::Not, 1>},
    {"shl", left},
    {"shr", right},
    {"shf", shift_funnel},
    {"lop3", logic3},
    {"prmt", permute_bytes},
    {"bfe", bit_extract},
    {"bfi", bit_insert},
    {"bfind", find_highest},
    {"popc", counting<ones>},
    {"clz", counting<zeros>},
    {"brev", bit_reverse},
    {"bmsk", decode_bmsk},
    {"szext", decode_szext},
    {"fns", decode_fns},
};

}  // namespace
}  // namespace emu::ptx
