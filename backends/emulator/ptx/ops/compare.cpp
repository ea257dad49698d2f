// SPDX-License-Identifier: MIT
// Comparison and selection. PTX ISA 9.0, sections 9.7.6 and 9.7.7.
#include "forms.h"
#include "half.h"

namespace emu::ptx {
namespace {

struct HalfLow {  // f16 as f32
    using V = f32v;
    static V get(const Warp& w, i32 offset) { return from_f16(w.get<u32v>(offset) & 0xffffu); }
};
struct BrainLow {
    using V = f32v;
    static V get(const Warp& w, i32 offset) { return from_bf16(w.get<u32v>(offset) & 0xffffu); }
};

enum class Test : u8 { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };

template <Test Kind, class V>
auto compared(V a, V b) {
    const auto unordered = (a != a) | (b != b);
    if constexpr (Kind == Test::Eq) return a == b;
    else if constexpr (Kind == Test::Ne) return (a != b) & ~unordered;
    else if constexpr (Kind == Test::Lt) return a < b;
    else if constexpr (Kind == Test::Le) return a <= b;
    else if constexpr (Kind == Test::Gt) return a > b;
    else if constexpr (Kind == Test::Ge) return a >= b;
    else if constexpr (Kind == Test::Equ) return (a == b) | unordered;
    else if constexpr (Kind == Test::Neu) return a != b;
    else if constexpr (Kind == Test::Ltu) return (a < b) | unordered;
    else if constexpr (Kind == Test::Leu) return (a <= b) | unordered;
    else if constexpr (Kind == Test::Gtu) return (a > b) | unordered;
    else if constexpr (Kind == Test::Geu) return (a >= b) | unordered;
    else if constexpr (Kind == Test::Num) return ~unordered;
    else return unordered;
}

template <class V>
u32 mask_of(V truth) {
    if constexpr (sizeof(truth) == sizeof(i32v)) return to_mask(bits<i32v>(truth));
    else return to_mask(bits<i64v>(truth));
}

enum class Combine : u8 { None, And, Or, Xor };

u32 combined(u32 value, u32 with, u32 how) {
    switch (static_cast<Combine>(how)) {
        case Combine::And: return value & with;
        case Combine::Or: return value | with;
        case Combine::Xor: return value ^ with;
        default: return value;
    }
}

// setp d|q, a, b, c: d is the comparison combined with c, q its opposite combined with c.
template <class T, Test Kind>
Flow set_predicate(Warp& w, const Op& op) {
    const u32 value = mask_of(compared<Kind>(T::get(w, op.operand[1]), T::get(w, op.operand[2])));
    if (!op.extra && op.operand[4] < 0) {
        w.put_predicate(op.operand[0], value);
        return Flow::Next;
    }
    u32 with = op.extra ? w.predicate(op.operand[3]) : kAllLanes;
    if (op.immediate) with = ~with;
    w.put_predicate(op.operand[0], combined(value, with, op.extra));
    if (op.operand[4] >= 0) w.put_predicate(op.operand[4], combined(~value, with, op.extra));
    return Flow::Next;
}

// set: all ones or 1.0 in place of a predicate.
template <class T, Test Kind>
Flow set_value(Warp& w, const Op& op) {
    const u32 value = mask_of(compared<Kind>(T::get(w, op.operand[1]), T::get(w, op.operand[2])));
    u32 with = op.extra ? w.predicate(op.operand[3]) : kAllLanes;
    const i32v lanes = to_lanes(combined(value, with, op.extra));
    w.put<u32v>(op.operand[0], op.immediate ? bits<u32v>(lanes) & as_u32(1.0f) : bits<u32v>(lanes));
    return Flow::Next;
}

template <class T, template <class, Test> class Run>
Handler by_test(std::string_view name) {
    constexpr bool kFloat = std::is_same_v<typename T::V, f32v> || std::is_same_v<typename T::V, f64v>;
    if (name == "eq") return Run<T, Test::Eq>::run;
    if (name == "ne") return Run < T, kFloat ? Test::Ne : Test::Neu > ::run;
    if (name == "lt" || name == "lo") return Run<T, Test::Lt>::run;
    if (name == "le" || name == "ls") return Run<T, Test::Le>::run;
    if (name == "gt" || name == "hi") return Run<T, Test::Gt>::run;
    if (name == "ge" || name == "hs") return Run<T, Test::Ge>::run;
    if constexpr (kFloat) {
        if (name == "equ") return Run<T, Test::Equ>::run;
        if (name == "neu") return Run<T, Test::Neu>::run;
        if (name == "ltu") return Run<T, Test::Ltu>::run;
        if (name == "leu") return Run<T, Test::Leu>::run;
        if (name == "gtu") return Run<T, Test::Gtu>::run;
        if (name == "geu") return Run<T, Test::Geu>::run;
        if (name == "num") return Run<T, Test::Num>::run;
        if (name == "nan") return Run<T, Test::Nan>::run;
    }
    return nullptr;
}

template <class T, Test Kind>
struct PredicateRun {
    static constexpr Handler run = set_predicate<T, Kind>;
};
template <class T, Test Kind>
struct ValueRun {
    static constexpr Handler run = set_value<T, Kind>;
};

template <template <class, Test> class Run>
Handler by_type(const Builder& b, std::string_view type) {
    const std::string& test = b.word(1);
    if (type == "u32" || type == "b32") return by_test<U32, Run>(test);
    if (type == "s32") return by_test<S32, Run>(test);
    if (type == "u64" || type == "b64") return by_test<U64, Run>(test);
    if (type == "s64") return by_test<S64, Run>(test);
    if (type == "u16" || type == "b16") return by_test<U16, Run>(test);
    if (type == "s16") return by_test<S16, Run>(test);
    if (type == "f32") return b.has("ftz") ? by_test<F32Ftz, Run>(test) : by_test<F32, Run>(test);
    if (type == "f64") return by_test<F64, Run>(test);
    if (type == "f16") return by_test<HalfLow, Run>(test);
    if (type == "bf16") return by_test<BrainLow, Run>(test);
    return nullptr;
}

u32 combination(const Builder& b) {
    return static_cast<u32>(
        b.has("and")   ? Combine::And
        : b.has("or")  ? Combine::Or
        : b.has("xor") ? Combine::Xor
                       : Combine::None);
}

bool decode_setp(Builder& b) {
    b.op.run = by_type<PredicateRun>(b, b.type());
    if (!b.op.run) return false;
    const u32 bytes = b.type().ends_with("64") ? 8 : 4;
    const Operand& result = b.operand(0);
    b.op.operand[4] = -1;
    if (result.kind == Operand::Kind::Pair) {
        b.op.operand[0] = b.target(result.parts[0], 0);
        b.op.operand[4] = b.target(result.parts[1], 0);
    } else {
        b.op.operand[0] = b.target(result, 0);
    }
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, bytes);
    b.op.extra = combination(b);
    if (b.op.extra) {
        b.op.operand[3] = b.offset(3, 0);
        b.op.immediate = b.operand(3).negated;
    }
    return true;
}

bool decode_set(Builder& b) {
    if (b.words() < 4) return false;
    const std::string& result = b.word(b.words() - 2);
    if (result != "u32" && result != "s32" && result != "f32") return false;
    b.op.run = by_type<ValueRun>(b, b.type());
    if (!b.op.run) return false;
    const u32 bytes = b.type().ends_with("64") ? 8 : 4;
    b.op.operand[0] = b.target(0, 4);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, bytes);
    b.op.extra = combination(b);
    b.op.immediate = result == "f32";
    if (b.op.extra) b.op.operand[3] = b.offset(3, 0);
    return true;
}

template <class T>
Flow select(Warp& w, const Op& op) {
    const u32 condition = w.predicate(op.operand[3]) ^ (op.immediate ? kAllLanes : 0);
    T::put(
        w, op.operand[0],
        choose<typename T::V>(to_lanes(condition), T::get(w, op.operand[1]), T::get(w, op.operand[2])));
    return Flow::Next;
}
Flow select_predicate(Warp& w, const Op& op) {
    const u32 c = w.predicate(op.operand[3]) ^ (op.immediate ? kAllLanes : 0);
    w.put_predicate(op.operand[0], (c & w.predicate(op.operand[1])) | (~c & w.predicate(op.operand[2])));
    return Flow::Next;
}

bool decode_selp(Builder& b) {
    const u32 bytes = b.type() == "pred" ? 0 : b.type().ends_with("64") ? 8 : 4;
    b.op.run = bytes == 0 ? select_predicate : bytes == 8 ? select<U64> : select<U32>;
    b.op.operand[0] = b.target(0, bytes);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, bytes);
    b.op.operand[3] = b.offset(3, 0);
    b.op.immediate = b.operand(3).negated;
    return true;
}

// slct d, a, b, c: a if c >= 0.
template <class T, class C>
Flow select_sign(Warp& w, const Op& op) {
    T::put(
        w, op.operand[0],
        choose<typename T::V>(
            bits<i32v>(C::get(w, op.operand[3]) >= 0), T::get(w, op.operand[1]), T::get(w, op.operand[2])));
    return Flow::Next;
}
bool decode_slct(Builder& b) {
    const u32 bytes = b.word(b.words() - 2).ends_with("64") ? 8 : 4;
    const bool number = b.type() == "f32";
    if (number && b.has("ftz")) b.op.run = bytes == 8 ? select_sign<U64, F32Ftz> : select_sign<U32, F32Ftz>;
    else
        b.op.run = bytes == 8 ? (number ? select_sign<U64, F32> : select_sign<U64, S32>)
                              : (number ? select_sign<U32, F32> : select_sign<U32, S32>);
    b.op.operand[0] = b.target(0, bytes);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, bytes);
    b.op.operand[3] = b.offset(3, 4);
    return true;
}

const Decoders kTable{{"setp", decode_setp}, {"set", decode_set}, {"selp", decode_selp}, {"slct", decode_slct}};

}  // namespace
}  // namespace emu::ptx
