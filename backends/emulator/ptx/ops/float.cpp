// SPDX-License-Identifier: MIT
// Floating-point arithmetic: f32, f64, f16, bf16 and pairs of the last two. PTX ISA 9.0, sections 9.7.3 to 9.7.5.
//
// NaN results of f32 are 7fffffff, of the short types 7fff. Special functions ("approx") are computed in double precision and
// rounded once; the hardware's tables are not public, and its results differ in the last place or two.
#include <cfenv>
#include <cmath>

#include "forms.h"
#include "half.h"

namespace emu::ptx {

bool integer_add(Builder&);
bool integer_sub(Builder&);
bool integer_mul(Builder&);
bool integer_mad(Builder&);
bool integer_div(Builder&);
bool integer_min(Builder&);
bool integer_max(Builder&);
bool integer_neg(Builder&);
bool integer_abs(Builder&);

namespace {

constexpr u32 kQuietF32 = 0x7fffffffu;

f32v saturated(f32v value) {
    const f32v low = choose<f32v>(value > 0.0f, value, f32v(0.0f));  // NaN and -0 become +0
    return choose<f32v>(low < 1.0f, low, f32v(1.0f));
}

// ---- f32

template <bool Ftz, bool Sat, auto F>
struct OneF32 {
    static Flow run(Warp& w, const Op& op) {
        using T = std::conditional_t<Ftz, F32Ftz, F32>;
        f32v result = canonical(F(T::get(w, op.operand[1])));
        if constexpr (Sat) result = saturated(result);
        T::put(w, op.operand[0], result);
        return Flow::Next;
    }
};
template <bool Ftz, bool Sat, auto F>
struct TwoF32 {
    static Flow run(Warp& w, const Op& op) {
        using T = std::conditional_t<Ftz, F32Ftz, F32>;
        f32v result = canonical(F(T::get(w, op.operand[1]), T::get(w, op.operand[2])));
        if constexpr (Sat) result = saturated(result);
        T::put(w, op.operand[0], result);
        return Flow::Next;
    }
};
template <bool Ftz, bool Sat, auto F>
struct ThreeF32 {
    static Flow run(Warp& w, const Op& op) {
        using T = std::conditional_t<Ftz, F32Ftz, F32>;
        f32v result = canonical(F(T::get(w, op.operand[1]), T::get(w, op.operand[2]), T::get(w, op.operand[3])));
        if constexpr (Sat) result = saturated(result);
        T::put(w, op.operand[0], result);
        return Flow::Next;
    }
};

template <template <bool, bool, auto> class Form, auto F>
Handler f32_form(const Builder& b) {
    const bool ftz = b.has("ftz"), sat = b.has("sat");
    return ftz ? (sat ? Form<true, true, F>::run : Form<true, false, F>::run)
               : (sat ? Form<false, true, F>::run : Form<false, false, F>::run);
}

constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto mul = [](auto a, auto b) { return a * b; };
constexpr auto quotient = [](auto a, auto b) { return a / b; };
constexpr auto fused = [](auto a, auto b, auto c) { return __builtin_elementwise_fma(a, b, c); };
constexpr auto root = [](auto a) { return __builtin_elementwise_sqrt(a); };
constexpr auto reciprocal = [](auto a) { return 1 / a; };
constexpr auto negated = [](auto a) { return -a; };
constexpr auto absolute = [](auto a) { return __builtin_elementwise_abs(a); };

// -0 is less than +0; a NaN gives way to a number.
template <class V, bool Max>
V extremum(V a, V b) {
    using I = std::conditional_t<sizeof(V) == sizeof(f32v), i32v, i64v>;
    const I ai = bits<I>(a), bi = bits<I>(b);
    const auto a_first = Max ? (a > b) : (a < b);
    const I equal_pick = Max ? (ai & bi) : (ai | bi);
    I result = (bits<I>(a_first) & ai) | (~bits<I>(a_first) & bi);
    const auto same = bits<I>(a == b);
    result = (same & equal_pick) | (~same & result);
    const auto a_nan = bits<I>(a != a), b_nan = bits<I>(b != b);
    result = (a_nan & bi) | (~a_nan & result);
    result = (b_nan & ai) | (~b_nan & result);
    return bits<V>(result);
}
constexpr auto least = [](f32v a, f32v b) { return extremum<f32v, false>(a, b); };
constexpr auto most = [](f32v a, f32v b) { return extremum<f32v, true>(a, b); };
constexpr auto least_nan = [](f32v a, f32v b) {
    return choose<f32v>((a != a) | (b != b), bits<f32v>(u32v(kQuietF32)), extremum<f32v, false>(a, b));
};
constexpr auto most_nan = [](f32v a, f32v b) {
    return choose<f32v>((a != a) | (b != b), bits<f32v>(u32v(kQuietF32)), extremum<f32v, true>(a, b));
};

/// Another rounding than to nearest: the CPU's own, for the time of one instruction. The values are hidden from the compiler,
/// which may take the mode for the default one.
class RoundingMode {
public:
    explicit RoundingMode(const Builder& b) : mode_(of(b)) {}
    static int of(const Builder& b) {
        return b.has("rz") || b.has("rzi") ? FE_TOWARDZERO
               : b.has("rm")               ? FE_DOWNWARD
               : b.has("rp")               ? FE_UPWARD
                                           : FE_TONEAREST;
    }
    int mode() const { return mode_; }

private:
    int mode_;
};

template <class V>
[[gnu::noinline]] V opaque(V value) {
    asm volatile("" : "+m"(value));
    return value;
}

template <class T, size_t Sources, auto F>
Flow directed(Warp& w, const Op& op) {
    using V = typename T::V;
    const int before = std::fegetround();
    V a = T::get(w, op.operand[1]), b{}, c{};
    if constexpr (Sources > 1) b = T::get(w, op.operand[2]);
    if constexpr (Sources > 2) c = T::get(w, op.operand[3]);
    std::fesetround(static_cast<int>(op.extra));
    a = opaque(a), b = opaque(b), c = opaque(c);
    V result{};
    if constexpr (Sources == 1) result = F(a);
    else if constexpr (Sources == 2) result = F(a, b);
    else result = F(a, b, c);
    result = opaque(result);
    std::fesetround(before);
    if constexpr (std::is_same_v<V, f32v>) result = canonical(result);
    if constexpr (std::is_same_v<V, f32v>)
        if (op.immediate) result = saturated(result);
    T::put(w, op.operand[0], result);
    return Flow::Next;
}

// f64: NaNs keep their payload on the hardware, the first of b, a (add, mul) or b, c, a (fma), quieted.
f64v with_nans(f64v result, std::initializer_list<f64v> order) {
    const i64v invalid = result != result;
    i64v word = bits<i64v>(result);
    word = (invalid & bits<i64v>(u64v(u64{0xfff8} << 48))) | (~invalid & word);
    for (auto each = std::rbegin(order); each != std::rend(order); ++each) {
        const i64v nan = *each != *each;
        word = (nan & (bits<i64v>(*each) | (i64{1} << 51))) | (~nan & word);
    }
    return bits<f64v>(word);
}
constexpr auto add64 = [](f64v a, f64v b) { return with_nans(a + b, {b, a}); };
constexpr auto sub64 = [](f64v a, f64v b) { return with_nans(a - b, {b, a}); };
constexpr auto mul64 = [](f64v a, f64v b) { return with_nans(a * b, {b, a}); };
constexpr auto fused64 = [](f64v a, f64v b, f64v c) {
    return with_nans(__builtin_elementwise_fma(a, b, c), {b, c, a});
};
constexpr auto quotient64 = [](f64v a, f64v b) { return with_nans(a / b, {b, a}); };
constexpr auto root64 = [](f64v a) { return with_nans(__builtin_elementwise_sqrt(a), {a}); };
constexpr auto reciprocal64 = [](f64v a) { return with_nans(1 / a, {a}); };
template <bool Max>
constexpr auto extremum64 = [](f64v a, f64v b) {
    // Of two NaNs it is b, quieted.
    const i64v both = (a != a) & (b != b);
    const i64v result = bits<i64v>(extremum<f64v, Max>(a, b));
    return bits<f64v>((both & (bits<i64v>(b) | (i64{1} << 51))) | (~both & result));
};

// ---- short types

struct Half {
    static f32v from(u32v v) { return from_f16(v); }
    static u32v to(f64v v) { return to_f16(v); }
};
struct Brain {
    static f32v from(u32v v) { return from_bf16(v); }
    static u32v to(f64v v) { return to_bf16(v); }
};

/// The exact sum of products in f64 rounded "to odd", so that a second rounding is harmless. Sources: Boldo and Melquiond,
/// Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd (2008).
f64v fused_to_odd(f64v product, f64v c) {
    const f64v sum = product + c;
    const f64v part = sum - product;
    const f64v rest = (product - (sum - part)) + (c - part);
    const i64v inexact = (rest != 0.0) & (sum - sum == 0.0);
    // Towards the true value by one place if the sum is even there.
    const i64v even = (bits<i64v>(sum) & 1) == 0;
    const i64v up = (rest > 0.0) == (sum > 0.0);
    const i64v change = inexact & even;
    const i64v step = (up & 1) | (~up & -1);
    return bits<f64v>(bits<i64v>(sum) + (change & step));
}

enum class ShortOp : u8 { Add, Sub, Mul, Fma, Min, Max, Neg, Abs };
template <class Type, ShortOp Kind>
u32v short_value(u32v ua, u32v ub, u32v uc, bool sat, bool relu, bool nan) {
    if constexpr (Kind == ShortOp::Neg || Kind == ShortOp::Abs) {
        const i32v is_nan = Type::from(ua) != Type::from(ua);
        const u32v value = Kind == ShortOp::Neg ? ua ^ 0x8000u : ua & 0x7fffu;
        return choose<u32v>(is_nan, u32v(0x7fffu), value & 0xffffu);
    } else {
        const f32v fa = Type::from(ua), fb = Type::from(ub);
        if constexpr (Kind == ShortOp::Min || Kind == ShortOp::Max) {
            f32v r = extremum<f32v, Kind == ShortOp::Max>(fa, fb);
            if (nan) r = choose<f32v>((fa != fa) | (fb != fb), bits<f32v>(u32v(kQuietF32)), r);
            return Type::to(convert<f64v>(r));
        } else {
            const f64v a = convert<f64v>(fa), b = convert<f64v>(fb);
            f64v r = a;
            if constexpr (Kind == ShortOp::Add) r = fused_to_odd(a, b);
            if constexpr (Kind == ShortOp::Sub) r = fused_to_odd(a, -b);
            if constexpr (Kind == ShortOp::Mul) r = a * b;
            if constexpr (Kind == ShortOp::Fma) r = fused_to_odd(a * b, convert<f64v>(Type::from(uc)));
            if (sat) r = convert<f64v>(saturated(convert<f32v>(r)));
            u32v result = Type::to(r);
            if (relu)
                result = choose<u32v>(
                    bits<i32v>((result & 0x8000u) != 0u) &
                        bits<i32v>((result & 0x7fffu) <= (std::is_same_v<Type, Half> ? 0x7c00u : 0x7f80u)),
                    u32v(0u), result);
            return result;
        }
    }
}

constexpr u32 kSat = 1, kRelu = 2, kNan = 4, kFtz = 8;

u32v flushed_f16(u32v half) { return choose<u32v>(bits<i32v>((half & 0x7c00u) == 0u), half & 0x8000u, half); }

template <class Type, ShortOp Kind, bool Pair>
Flow short_op(Warp& w, const Op& op) {
    u32v a = w.get<u32v>(op.operand[1]), b = w.get<u32v>(op.operand[2]), c = w.get<u32v>(op.operand[3]);
    const bool sat = op.extra & kSat, relu = op.extra & kRelu, nan = op.extra & kNan, ftz = op.extra & kFtz;
    const auto half = [&](u32v x, u32v y, u32v z) {
        if (ftz) x = flushed_f16(x), y = flushed_f16(y), z = flushed_f16(z);
        u32v r = short_value<Type, Kind>(x, y, z, sat, relu, nan);
        return ftz ? flushed_f16(r) : r;
    };
    u32v result = half(a & 0xffffu, b & 0xffffu, c & 0xffffu);
    if constexpr (Pair) result |= half(a >> 16, b >> 16, c >> 16) << 16;
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}

template <ShortOp Kind>
bool short_form(Builder& b, size_t sources) {
    const std::string& type = b.type();
    const Handler handler = type == "f16"      ? short_op<Half, Kind, false>
                            : type == "f16x2"  ? short_op<Half, Kind, true>
                            : type == "bf16"   ? short_op<Brain, Kind, false>
                            : type == "bf16x2" ? short_op<Brain, Kind, true>
                                               : nullptr;
    if (!handler || b.has("xorsign")) return false;
    b.op.extra =
        (b.has("sat") ? kSat : 0) | (b.has("relu") ? kRelu : 0) | (b.has("NaN") ? kNan : 0) | (b.has("ftz") ? kFtz : 0);
    return set(b, handler, 4, sources);
}

// ---- decoders

bool is_integer_type(const std::string& type) {
    return (type[0] == 'u' || type[0] == 's' || (type[0] == 'b' && !type.starts_with("bf")));
}

template <size_t Sources, auto F32Function, auto F64Function, ShortOp Short, template <bool, bool, auto> class Form>
bool arithmetic(Builder& b) {
    const std::string& type = b.type();
    const int mode = RoundingMode::of(b);
    if (type == "f32") {
        if (mode == FE_TONEAREST) return set(b, f32_form<Form, F32Function>(b), 4, Sources);
        b.op.extra = static_cast<u32>(mode);
        b.op.immediate = b.has("sat");
        return set(
            b, b.has("ftz") ? directed<F32Ftz, Sources, F32Function> : directed<F32, Sources, F32Function>, 4, Sources);
    }
    if (type == "f64") {
        b.op.extra = static_cast<u32>(mode);
        return set(b, directed<F64, Sources, F64Function>, 8, Sources);
    }
    return mode == FE_TONEAREST && short_form<Short>(b, Sources);
}

bool decode_add(Builder& b) {
    return is_integer_type(b.type()) ? integer_add(b) : arithmetic<2, add, add64, ShortOp::Add, TwoF32>(b);
}
bool decode_sub(Builder& b) {
    return is_integer_type(b.type()) ? integer_sub(b) : arithmetic<2, sub, sub64, ShortOp::Sub, TwoF32>(b);
}
/// The product is flushed by its exact value, before it is rounded (recorded on an H200).
constexpr auto mul_flushed = [](f32v a, f32v b) {
    const f64v exact = convert<f64v>(a) * convert<f64v>(b);
    const i32v tiny = convert<i32v>(__builtin_elementwise_abs(exact) < 0x1p-126);
    return choose<f32v>(tiny, bits<f32v>(bits<u32v>(a * b) & 0x80000000u), a * b);
};

bool decode_mul(Builder& b) {
    if (b.type() == "f32" && b.has("ftz") && RoundingMode::of(b) == FE_TONEAREST)
        return set(b, f32_form<TwoF32, mul_flushed>(b), 4, 2);
    return is_integer_type(b.type()) ? integer_mul(b) : arithmetic<2, mul, mul64, ShortOp::Mul, TwoF32>(b);
}
bool decode_fma(Builder& b) { return arithmetic<3, fused, fused64, ShortOp::Fma, ThreeF32>(b); }
bool decode_mad(Builder& b) { return is_integer_type(b.type()) ? integer_mad(b) : decode_fma(b); }

/// a times the reciprocal of b, which is 0 where it would be subnormal; a subnormal b is scaled first.
constexpr auto approximate_quotient = [](f32v a, f32v b) {
    const i32v small = __builtin_elementwise_abs(b) < 0x1p-126f;
    const f32v scaled = choose<f32v>(small, b * 0x1p24f, b), by = flushed(1 / scaled);
    return choose<f32v>(small, a * 0x1p24f, a) * by;
};

bool decode_div(Builder& b) {
    if (is_integer_type(b.type())) return integer_div(b);
    if (b.type() == "f64") {
        b.op.extra = static_cast<u32>(RoundingMode::of(b));
        return set(b, directed<F64, 2, quotient64>, 8, 2);
    }
    if (b.type() != "f32") return false;
    const int mode = RoundingMode::of(b);
    if (b.has("approx")) return set(b, f32_form<TwoF32, approximate_quotient>(b), 4, 2);
    if (mode == FE_TONEAREST) return set(b, f32_form<TwoF32, quotient>(b), 4, 2);
    b.op.extra = static_cast<u32>(mode);
    return set(b, b.has("ftz") ? directed<F32Ftz, 2, quotient> : directed<F32, 2, quotient>, 4, 2);
}

/// The smaller or larger absolute value, with the sign of both signs' xor.
template <bool Max>
constexpr auto magnitudes = [](f32v a, f32v b) {
    const f32v result = extremum<f32v, Max>(__builtin_elementwise_abs(a), __builtin_elementwise_abs(b));
    const u32v sign = (bits<u32v>(a) ^ bits<u32v>(b)) & 0x80000000u;
    return choose<f32v>((a != a) & (b != b), result, bits<f32v>(bits<u32v>(result) | sign));
};

template <bool Max>
bool decode_extremum(Builder& b) {
    const std::string& type = b.type();
    if (is_integer_type(type)) return Max ? integer_max(b) : integer_min(b);
    if (b.has("xorsign")) return type == "f32" && !b.has("NaN") && set(b, f32_form<TwoF32, magnitudes<Max>>(b), 4, 2);
    if (type == "f32") {
        const Handler number = Max ? f32_form<TwoF32, most>(b) : f32_form<TwoF32, least>(b);
        const Handler nan = Max ? f32_form<TwoF32, most_nan>(b) : f32_form<TwoF32, least_nan>(b);
        return set(b, b.has("NaN") ? nan : number, 4, 2);
    }
    if (type == "f64") return set(b, binary<F64, extremum64<Max>>, 8, 2);
    return short_form<Max ? ShortOp::Max : ShortOp::Min>(b, 2);
}

constexpr auto negated64 = [](f64v a) { return bits<f64v>(bits<u64v>(a) ^ (u64{1} << 63)); };
constexpr auto absolute64 = [](f64v a) { return bits<f64v>(bits<u64v>(a) & ~(u64{1} << 63)); };

bool decode_neg(Builder& b) {
    if (is_integer_type(b.type())) return integer_neg(b);
    if (b.type() == "f32") return set(b, f32_form<OneF32, negated>(b), 4, 1);
    return b.type() == "f64" ? set(b, unary<F64, negated64>, 8, 1) : short_form<ShortOp::Neg>(b, 1);
}
bool decode_abs(Builder& b) {
    if (is_integer_type(b.type())) return integer_abs(b);
    if (b.type() == "f32") return set(b, f32_form<OneF32, absolute>(b), 4, 1);
    return b.type() == "f64" ? set(b, unary<F64, absolute64>, 8, 1) : short_form<ShortOp::Abs>(b, 1);
}

f64 flushed_lane(f32 value) {
    return as_u32(value) & 0x7f800000u ? static_cast<f64>(value) : std::copysign(0.0, value);
}

/// A function of one lane, in double precision, rounded once to f32.
template <double (*F)(double)>
constexpr auto by_lane = [](f32v a) {
    f32v result = a;
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = static_cast<f32>(F(static_cast<double>(a[lane])));
    return result;
};
double inverse_root(double x) { return 1 / std::sqrt(x); }

/// The hardware first makes revolutions: times 1 / (2 pi) as f32, cut towards zero. Subnormals count as zero.
template <double (*F)(double)>
constexpr auto of_revolutions = [](f32v a) {
    f32v result = a;
    for (int lane = 0; lane < kLanes; ++lane) {
        const f64 x = flushed_lane(a[lane]);
        const f64 exact = x * static_cast<f64>(as_f32(0x3e22f983));
        const f64 turns = as_f64(as_u64(exact) & ~u64{0x1fffffff});
        const f64 part = std::fmod(turns, 1.0);
        result[lane] = static_cast<f32>(F(part * 6.283185307179586476925));
    }
    return result;
};

// From the upper word of a double alone; so is the result, rounded to nearest there.
template <double (*F)(double)>
constexpr auto upper_half = [](f64v a) {
    f64v result = a;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 word = as_u64(a[lane]) & ~u64{0xffffffff};
        const bool subnormal = !(word << 1 >> 53);
        const f64 x = subnormal ? as_f64(word & (u64{1} << 63)) : as_f64(word);
        u64 r = as_u64(F(x));
        if ((r << 1) < (u64{0x7ff} << 53)) r += u64{1} << 31;
        if (!(r << 1 >> 53)) r &= u64{1} << 63;
        if (as_f64(r) != as_f64(r)) r = u64{0x7fffffff} << 32;
        result[lane] = as_f64(r & ~u64{0xffffffff});
    }
    return result;
};
double inverse(double x) { return 1 / x; }

bool decode_sqrt(Builder& b) {
    const int mode = RoundingMode::of(b);
    if (b.type() == "f64") {
        b.op.extra = static_cast<u32>(mode);
        return set(b, directed<F64, 1, root64>, 8, 1);
    }
    if (b.type() != "f32") return false;
    if (mode == FE_TONEAREST) return set(b, f32_form<OneF32, root>(b), 4, 1);
    b.op.extra = static_cast<u32>(mode);
    return set(b, b.has("ftz") ? directed<F32Ftz, 1, root> : directed<F32, 1, root>, 4, 1);
}
bool decode_rcp(Builder& b) {
    const int mode = RoundingMode::of(b);
    if (b.type() == "f64") {
        if (b.has("approx")) return set(b, unary<F64, upper_half<inverse>>, 8, 1);
        b.op.extra = static_cast<u32>(mode);
        return set(b, directed<F64, 1, reciprocal64>, 8, 1);
    }
    if (b.type() != "f32") return false;
    if (mode == FE_TONEAREST) return set(b, f32_form<OneF32, reciprocal>(b), 4, 1);
    b.op.extra = static_cast<u32>(mode);
    return set(b, b.has("ftz") ? directed<F32Ftz, 1, reciprocal> : directed<F32, 1, reciprocal>, 4, 1);
}

// 2^x for 32 lanes: e^(f ln 2) of the fraction by its series, which f64 carries far beyond f32's last place.
f32v exponential(f32v a) {
    const f64v x = __builtin_elementwise_max(__builtin_elementwise_min(convert<f64v>(a), f64v(200.0)), f64v(-200.0));
    const f64v whole = __builtin_elementwise_roundeven(x);
    const f64v t = (x - whole) * 0.693147180559945309417;
    f64v sum = f64v(1.0);
    for (int k = 11; k > 0; --k) sum = 1.0 + sum * t * (1.0 / k);
    const f64v scale = bits<f64v>(bits<u64v>((convert<i64v>(whole) + 1023) << 52));
    const f32v result = convert<f32v>(sum * scale);
    return choose<f32v>(a == a, result, a);
}
constexpr auto power = [](f32v a) { return exponential(a); };

bool f32_function(Builder& b, Handler plain, Handler ftz) {
    return b.type() == "f32" && set(b, b.has("ftz") ? ftz : plain, 4, 1);
}

template <auto F>
bool special(Builder& b) {
    return f32_function(b, OneF32<false, false, F>::run, OneF32<true, false, F>::run);
}

// ex2 and tanh of f16 and bf16.
template <class Type, bool Pair, auto F>
Flow short_special(Warp& w, const Op& op) {
    const u32v a = w.get<u32v>(op.operand[1]);
    const auto half = [&](u32v word) {
        const f32v value = F(Type::from(word));
        // bf16 has f32's exponents, so its subnormals are f32's.
        return Type::to(convert<f64v>(op.extra & kFtz ? flushed(value) : value));
    };
    u32v result = half(a & 0xffffu);
    if constexpr (Pair) result |= half(a >> 16) << 16;
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}
template <auto F>
bool special_any(Builder& b) {
    const std::string& type = b.type();
    const Handler handler = type == "f16"      ? short_special<Half, false, F>
                            : type == "f16x2"  ? short_special<Half, true, F>
                            : type == "bf16"   ? short_special<Brain, false, F>
                            : type == "bf16x2" ? short_special<Brain, true, F>
                                               : nullptr;
    if (!handler) return special<F>(b);
    if (b.has("ftz") && type.starts_with("bf")) b.op.extra = kFtz;
    return set(b, handler, 4, 1);
}

bool decode_rsqrt(Builder& b) {
    if (b.type() == "f64") return set(b, unary<F64, upper_half<inverse_root>>, 8, 1);
    return special<by_lane<inverse_root>>(b);
}

// copysign d, a, b: the sign of a, the rest of b.
template <class T, u64 Sign>
constexpr auto signed_as = [](typename T::V a, typename T::V b) {
    return (a & static_cast<std::remove_cvref_t<decltype(a[0])>>(Sign)) |
           (b & static_cast<std::remove_cvref_t<decltype(a[0])>>(~Sign));
};
bool decode_copysign(Builder& b) {
    if (b.type() == "f64") return set(b, binary<U64, signed_as<U64, u64{1} << 63>>, 8, 2);
    return b.type() == "f32" && set(b, binary<U32, signed_as<U32, 0x80000000u>>, 4, 2);
}

// testp: what kind of number it is.
Flow test_property(Warp& w, const Op& op) {
    const u32v word = w.get<u32v>(op.operand[1]), magnitude = word & 0x7fffffffu;
    i32v truth = i32v(0);
    switch (op.extra) {
        case 0: truth = bits<i32v>(magnitude < 0x7f800000u); break;
        case 1: truth = bits<i32v>(magnitude == 0x7f800000u); break;
        case 2: truth = bits<i32v>(magnitude <= 0x7f800000u); break;
        case 3: truth = bits<i32v>(magnitude > 0x7f800000u); break;
        // Zero counts as normal (recorded on an H200).
        case 4:
            truth = (bits<i32v>(magnitude >= 0x00800000u) & bits<i32v>(magnitude < 0x7f800000u)) |
                    bits<i32v>(magnitude == 0u);
            break;
        default: truth = bits<i32v>(magnitude < 0x00800000u) & bits<i32v>(magnitude != 0u); break;
    }
    w.put_predicate(op.operand[0], to_mask(truth));
    return Flow::Next;
}
bool decode_testp(Builder& b) {
    constexpr const char* kKinds[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    if (b.type() != "f32") return false;
    for (u32 i = 0; i < 6; ++i)
        if (b.word(1) == kKinds[i]) {
            b.op.run = test_property;
            b.op.extra = i;
            b.op.operand[0] = b.target(0, 0);
            b.op.operand[1] = b.offset(1, 4);
            return true;
        }
    return false;
}

const Decoders kTable{
    {"add", decode_add},
    {"sub", decode_sub},
    {"mul", decode_mul},
    {"mad", decode_mad},
    {"fma", decode_fma},
    {"div", decode_div},
    {"min", decode_extremum<false>},
    {"max", decode_extremum<true>},
    {"neg", decode_neg},
    {"abs", decode_abs},
    {"sqrt", decode_sqrt},
    {"rcp", decode_rcp},
    {"rsqrt", decode_rsqrt},
    {"sin", special<of_revolutions<std::sin>>},
    {"cos", special<of_revolutions<std::cos>>},
    {"lg2", special<by_lane<std::log2>>},
    {"ex2", special_any<power>},
    {"tanh", special_any<by_lane<std::tanh>>},
    {"copysign", decode_copysign},
    {"testp", decode_testp},
};

}  // namespace
}  // namespace emu::ptx
