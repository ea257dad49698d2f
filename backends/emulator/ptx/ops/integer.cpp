// SPDX-License-Identifier: MIT
// Integer arithmetic. PTX ISA 9.0, sections 9.7.1 and 9.7.2.
#include <algorithm>

#include "forms.h"

namespace emu::ptx {
namespace {

template <class T>
using Wide = std::conditional_t<
    std::is_same_v<T, U32>, U64,
    std::conditional_t<std::is_same_v<T, S32>, S64, std::conditional_t<std::is_same_v<T, U16>, U32, S32>>>;

constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto mul = [](auto a, auto b) { return a * b; };
constexpr auto mad = [](auto a, auto b, auto c) { return a * b + c; };
constexpr auto least = [](auto a, auto b) { return __builtin_elementwise_min(a, b); };
constexpr auto most = [](auto a, auto b) { return __builtin_elementwise_max(a, b); };
constexpr auto negated = [](auto a) { return 0 - a; };
constexpr auto absolute = [](auto a) { return __builtin_elementwise_max(a, 0 - a); };

/// A function of one lane's values, lane by lane.
template <class T, class F>
typename T::V by_lane(typename T::V a, typename T::V b, F f) {
    typename T::V result = a;
    for (int i = 0; i < kLanes; ++i) result[i] = f(a[i], b[i]);
    return result;
}

// The hardware answers a division by zero with all ones, and the remainder with all ones, too (recorded on an H200).
template <class T>
constexpr auto quotient = [](typename T::V a, typename T::V b) {
    return by_lane<T>(a, b, [](auto x, auto y) {
        using E = decltype(x);
        if (y == 0) return static_cast<E>(-1);
        if (std::is_signed_v<E> && y == static_cast<E>(-1))
            return static_cast<E>(0 - static_cast<std::make_unsigned_t<E>>(x));
        return static_cast<E>(x / y);
    });
};
template <class T>
constexpr auto remainder = [](typename T::V a, typename T::V b) {
    return by_lane<T>(a, b, [](auto x, auto y) {
        using E = decltype(x);
        if (y == 0) return static_cast<E>(-1);
        if (std::is_signed_v<E> && y == static_cast<E>(-1)) return static_cast<E>(0);
        return static_cast<E>(x % y);
    });
};

template <class T>
constexpr auto high = [](typename T::V a, typename T::V b) {
    if constexpr (T::kBytes == 8) {
        return by_lane<T>(a, b, [](auto x, auto y) {
            using W = std::conditional_t<std::is_signed_v<decltype(x)>, __int128, unsigned __int128>;
            return static_cast<decltype(x)>((static_cast<W>(x) * y) >> 64);
        });
    } else if constexpr (std::is_same_v<T, U32> || std::is_same_v<T, S32>) {
        using W = typename Wide<T>::V;
        return convert<typename T::V>((convert<W>(a) * convert<W>(b)) >> 32);
    } else {
        return (a * b) >> 16;
    }
};
template <class T>
constexpr auto high_add = [](typename T::V a, typename T::V b, typename T::V c) { return high<T>(a, b) + c; };

template <class T>
Flow wide_product(Warp& w, const Op& op) {
    using W = Wide<T>;
    if constexpr (W::kBytes == 8)
        W::put(
            w, op.operand[0],
            convert<typename W::V>(T::get(w, op.operand[1])) * convert<typename W::V>(T::get(w, op.operand[2])));
    else W::put(w, op.operand[0], T::get(w, op.operand[1]) * T::get(w, op.operand[2]));
    return Flow::Next;
}
template <class T>
Flow wide_mad(Warp& w, const Op& op) {
    using W = Wide<T>;
    typename W::V product;
    if constexpr (W::kBytes == 8)
        product = convert<typename W::V>(T::get(w, op.operand[1])) * convert<typename W::V>(T::get(w, op.operand[2]));
    else product = T::get(w, op.operand[1]) * T::get(w, op.operand[2]);
    W::put(w, op.operand[0], product + W::get(w, op.operand[3]));
    return Flow::Next;
}

template <class T> struct AddMaker {
    static Handler handler() { return binary<T, add>; }
};
template <class T> struct SubMaker {
    static Handler handler() { return binary<T, sub>; }
};
template <class T> struct MulMaker {
    static Handler handler() { return binary<T, mul>; }
};
template <class T> struct HighMaker {
    static Handler handler() { return binary<T, high<T>>; }
};
template <class T> struct MadMaker {
    static Handler handler() { return ternary<T, mad>; }
};
template <class T> struct HighMadMaker {
    static Handler handler() { return ternary<T, high_add<T>>; }
};
template <class T> struct MinMaker {
    static Handler handler() { return binary<T, least>; }
};
template <class T> struct MaxMaker {
    static Handler handler() { return binary<T, most>; }
};
template <class T> struct DivMaker {
    static Handler handler() { return binary<T, quotient<T>>; }
};
template <class T> struct RemMaker {
    static Handler handler() { return binary<T, remainder<T>>; }
};
template <class T> struct NegMaker {
    static Handler handler() { return unary<T, negated>; }
};
template <class T> struct AbsMaker {
    static Handler handler() { return unary<T, absolute>; }
};
bool is_integer(const Builder& b) {
    const char c = b.type()[0];
    return (c == 'u' || c == 's' || c == 'b') && !b.type().starts_with("bf");
}

// Shorter forms of the decoders below: a float is somebody else's.
template <template <class> class Make, size_t Sources>
bool plain(Builder& b) {
    if (!is_integer(b) || b.has("sat") || b.has("cc") || b.has("relu")) return false;
    const Handler handler = integer_handler<Make>(b.type());
    return handler && set(b, handler, integer_bytes(b.type()), Sources);
}

bool multiply(Builder& b) {
    if (!is_integer(b)) return false;
    const std::string& type = b.type();
    if (b.has("wide")) {
        const u32 wide = type.ends_with("16") ? 4 : 8;
        b.op.run = type == "u32"   ? wide_product<U32>
                   : type == "s32" ? wide_product<S32>
                   : type == "u16" ? wide_product<U16>
                   : type == "s16" ? wide_product<S16>
                                   : nullptr;
        if (!b.op.run) return false;
        b.op.operand[0] = b.target(0, wide);
        for (size_t i = 1; i <= 2; ++i) b.op.operand[i] = b.offset(i, 4);
        return true;
    }
    return b.has("hi") ? plain<HighMaker, 2>(b) : b.has("lo") && plain<MulMaker, 2>(b);
}

bool multiply_add(Builder& b) {
    if (!is_integer(b)) return false;
    const std::string& type = b.type();
    if (b.has("wide")) {
        const u32 wide = type.ends_with("16") ? 4 : 8;
        b.op.run = type == "u32"   ? wide_mad<U32>
                   : type == "s32" ? wide_mad<S32>
                   : type == "u16" ? wide_mad<U16>
                   : type == "s16" ? wide_mad<S16>
                                   : nullptr;
        if (!b.op.run) return false;
        b.op.operand[0] = b.target(0, wide);
        b.op.operand[1] = b.offset(1, 4);
        b.op.operand[2] = b.offset(2, 4);
        b.op.operand[3] = b.offset(3, wide);
        return true;
    }
    return b.has("hi") ? plain<HighMadMaker, 3>(b) : b.has("lo") && plain<MadMaker, 3>(b);
}

// dp4a, dp2a: sums of products of bytes.
template <bool SignedA, bool SignedB>
Flow dot4(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]);
    u32v sum = w.get<u32v>(op.operand[3]);
    for (u32 i = 0; i < 4; ++i) {
        const u32v x = a << (24 - 8 * i), y = b << (24 - 8 * i);
        const i32v p = SignedA ? bits<i32v>(x) >> 24 : bits<i32v>(x >> 24),
                   q = SignedB ? bits<i32v>(y) >> 24 : bits<i32v>(y >> 24);
        sum += bits<u32v>(p * q);
    }
    w.put<u32v>(op.operand[0], sum);
    return Flow::Next;
}

bool dot_product4(Builder& b) {
    if (b.words() != 3) return false;
    const bool x = b.word(1) == "s32", y = b.word(2) == "s32";
    return set(b, x ? (y ? dot4<true, true> : dot4<true, false>) : (y ? dot4<false, true> : dot4<false, false>), 4, 3);
}

// sad d, a, b, c: |a - b| + c.
template <class T>
constexpr auto distance = [](typename T::V a, typename T::V b, typename T::V c) {
    return __builtin_elementwise_max(a, b) - __builtin_elementwise_min(a, b) + c;
};
template <class T> struct SadMaker {
    static Handler handler() { return ternary<T, distance<T>>; }
};

template <class T>
constexpr auto low24 = [](typename T::V a, typename T::V b) { return ((a << 8) >> 8) * ((b << 8) >> 8); };
template <class T>
constexpr auto low24_add =
    [](typename T::V a, typename T::V b, typename T::V c) { return ((a << 8) >> 8) * ((b << 8) >> 8) + c; };

// The upper 32 of 48 bits.
template <class T>
constexpr auto high24 = [](typename T::V a, typename T::V b) {
    using W = typename Wide<T>::V;
    return convert<typename T::V>((convert<W>((a << 8) >> 8) * convert<W>((b << 8) >> 8)) >> 16);
};
template <class T>
constexpr auto high24_add = [](typename T::V a, typename T::V b, typename T::V c) { return high24<T>(a, b) + c; };

bool multiply24(Builder& b) {
    if (b.has("hi")) return set(b, b.type() == "s32" ? binary<S32, high24<S32>> : binary<U32, high24<U32>>, 4, 2);
    if (!b.has("lo")) return false;
    return set(b, b.type() == "s32" ? binary<S32, low24<S32>> : binary<U32, low24<U32>>, 4, 2);
}
bool multiply_add24(Builder& b) {
    if (b.has("sat")) return false;
    if (b.has("hi"))
        return set(b, b.type() == "s32" ? ternary<S32, high24_add<S32>> : ternary<U32, high24_add<U32>>, 4, 3);
    if (!b.has("lo")) return false;
    return set(b, b.type() == "s32" ? ternary<S32, low24_add<S32>> : ternary<U32, low24_add<U32>>, 4, 3);
}

// add.sat, sub.sat, mad.hi.sat of s32
i32v clamped(i64v value) {
    return convert<i32v>(__builtin_elementwise_max(__builtin_elementwise_min(value, i64v(INT32_MAX)), i64v(INT32_MIN)));
}
constexpr auto add_clamped = [](i32v a, i32v b) { return clamped(convert<i64v>(a) + convert<i64v>(b)); };
constexpr auto sub_clamped = [](i32v a, i32v b) { return clamped(convert<i64v>(a) - convert<i64v>(b)); };
constexpr auto mad_high_clamped = [](i32v a, i32v b, i32v c) {
    return clamped(((convert<i64v>(a) * convert<i64v>(b)) >> 32) + convert<i64v>(c));
};

// add.cc, addc, sub.cc, subc, mad.lo.cc, madc: the carry lies in a register of the warp's own (operand 4), one bit a lane.
enum class Carry : u8 { Add, Sub, MadLow, MadHigh };
constexpr u32 kUses = 1, kSets = 2;
template <class T, Carry Kind>
Flow with_carry(Warp& w, const Op& op) {
    using Wide = unsigned __int128;
    using E = std::remove_cvref_t<decltype(typename T::V{}[0])>;
    constexpr int kWidth = 8 * T::kBytes;
    const auto a = T::get(w, op.operand[1]), b = T::get(w, op.operand[2]);
    const auto c = Kind == Carry::MadLow || Kind == Carry::MadHigh ? T::get(w, op.operand[3]) : a;
    const u32 in = op.extra & kUses ? w.predicate(op.operand[4]) : 0;
    typename T::V result = a;
    u32 out = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 carry = in >> lane & 1;
        Wide sum;
        if constexpr (Kind == Carry::Add) sum = Wide{a[lane]} + b[lane] + carry;
        else if constexpr (Kind == Carry::Sub) sum = Wide{a[lane]} - b[lane] - carry;  // carry is the borrow
        else {
            const Wide product = Wide{a[lane]} * b[lane];
            sum = (Kind == Carry::MadLow ? Wide{static_cast<E>(product)} : product >> kWidth) + c[lane] + carry;
        }
        result[lane] = static_cast<E>(sum);
        out |= static_cast<u32>((sum >> kWidth) & 1) << lane;
    }
    T::put(w, op.operand[0], result);
    if (op.extra & kSets) w.put_predicate(op.operand[4], out);
    return Flow::Next;
}

template <Carry Kind>
bool carried(Builder& b, size_t sources) {
    const u32 bytes = integer_bytes(b.type());
    b.op.operand[4] = b.carry();
    b.op.extra = (b.word(0).ends_with("c") ? kUses : 0) | (b.has("cc") ? kSets : 0);
    return set(b, bytes == 8 ? with_carry<U64, Kind> : with_carry<U32, Kind>, bytes, sources);
}

// Two 16-bit integers in a register.
template <bool Signed, auto F>
Flow pairwise(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]);
    const auto half = [](u32v v, bool up) {
        const u32v moved = up ? v >> 16 : v & 0xffffu;
        return bits<i32v>(Signed ? bits<u32v>(bits<i32v>(moved << 16) >> 16) : moved);
    };
    i32v low = F(half(a, false), half(b, false)), high = F(half(a, true), half(b, true));
    if (op.extra) low = __builtin_elementwise_max(low, i32v(0)), high = __builtin_elementwise_max(high, i32v(0));
    w.put<u32v>(op.operand[0], (bits<u32v>(high) << 16) | (bits<u32v>(low) & 0xffffu));
    return Flow::Next;
}
template <auto F>
bool pair_form(Builder& b) {
    b.op.extra = b.has("relu");
    return set(b, b.type() == "s16x2" ? pairwise<true, F> : pairwise<false, F>, 4, 2);
}

template <auto F>
constexpr auto not_negative = [](i32v a, i32v b) { return __builtin_elementwise_max(F(a, b), i32v(0)); };

bool is_pair(const Builder& b) { return b.type() == "u16x2" || b.type() == "s16x2"; }

// dp2a.lo/hi.a.b: two 16-bit numbers of a times the lower or upper two bytes of b.
template <bool SignedA, bool SignedB>
Flow dot2(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]) >> (op.extra ? 16u : 0u);
    u32v sum = w.get<u32v>(op.operand[3]);
    for (u32 i = 0; i < 2; ++i) {
        const u32v x = a << (16 - 16 * i), y = b << (24 - 8 * i);
        const i32v p = SignedA ? bits<i32v>(x) >> 16 : bits<i32v>(x >> 16),
                   q = SignedB ? bits<i32v>(y) >> 24 : bits<i32v>(y >> 24);
        sum += bits<u32v>(p * q);
    }
    w.put<u32v>(op.operand[0], sum);
    return Flow::Next;
}
bool decode_dp2a(Builder& b) {
    if (b.words() != 4) return false;
    const bool x = b.word(2) == "s32", y = b.word(3) == "s32";
    b.op.extra = b.has("hi");
    return set(b, x ? (y ? dot2<true, true> : dot2<true, false>) : (y ? dot2<false, true> : dot2<false, false>), 4, 3);
}

bool decode_addc(Builder& b) { return carried<Carry::Add>(b, 2); }
bool decode_subc(Builder& b) { return carried<Carry::Sub>(b, 2); }
bool decode_madc(Builder& b) { return b.has("hi") ? carried<Carry::MadHigh>(b, 3) : carried<Carry::MadLow>(b, 3); }

}  // namespace

// Words that floats have, too: float.cpp asks these first.
bool integer_add(Builder& b) {
    if (b.has("cc")) return carried<Carry::Add>(b, 2);
    if (is_pair(b)) return pair_form<add>(b);
    if (b.has("sat")) return b.type() == "s32" && set(b, binary<S32, add_clamped>, 4, 2);
    return plain<AddMaker, 2>(b);
}
bool integer_sub(Builder& b) {
    if (b.has("cc")) return carried<Carry::Sub>(b, 2);
    if (b.has("sat")) return b.type() == "s32" && set(b, binary<S32, sub_clamped>, 4, 2);
    return plain<SubMaker, 2>(b);
}
bool integer_mul(Builder& b) { return multiply(b); }
bool integer_mad(Builder& b) {
    if (b.has("cc")) return decode_madc(b);
    if (b.has("sat")) return b.has("hi") && b.type() == "s32" && set(b, ternary<S32, mad_high_clamped>, 4, 3);
    return multiply_add(b);
}
bool integer_div(Builder& b) { return plain<DivMaker, 2>(b); }
bool integer_min(Builder& b) {
    if (is_pair(b)) return pair_form<least>(b);
    if (b.has("relu")) return b.type() == "s32" && set(b, binary<S32, not_negative<least>>, 4, 2);
    return plain<MinMaker, 2>(b);
}
bool integer_max(Builder& b) {
    if (is_pair(b)) return pair_form<most>(b);
    if (b.has("relu")) return b.type() == "s32" && set(b, binary<S32, not_negative<most>>, 4, 2);
    return plain<MaxMaker, 2>(b);
}
bool integer_neg(Builder& b) { return plain<NegMaker, 1>(b); }
bool integer_abs(Builder& b) { return plain<AbsMaker, 1>(b); }

namespace {

const Decoders kTable{
    {"rem", plain<RemMaker, 2>}, {"sad", plain<SadMaker, 3>}, {"dp4a", dot_product4},
    {"mul24", multiply24},       {"mad24", multiply_add24},   {"addc", decode_addc},
    {"subc", decode_subc},       {"madc", decode_madc},       {"dp2a", decode_dp2a},
};

}  // namespace
}  // namespace emu::ptx
