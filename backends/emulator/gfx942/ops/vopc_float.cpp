// SPDX-License-Identifier: MIT
// Comparisons and classes of floats (VOPC). v_cmpx_* also make the result the new EXEC.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "VOPC": lt, eq, le, gt, lg and ge
// are false for unordered operands, their opposites (nge …) true.
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

// f16: an integer that orders like the value (both zeros are 0), and whether it is a NaN.
i32v magnitude16(const u32* s) { return load<i32v>(s) & 0x7fff; }
i32v ordered16(const u32* s) {
    const i32v size = magnitude16(s), sign = -(load<i32v>(s) >> 15 & 1);
    return (size ^ sign) - sign;
}
i32v is_nan16(const u32* s) { return magnitude16(s) > 0x7c00; }

struct F16 {
    template <class F>
    static u64 ordered(const Lanes& l, F truth) {
        return to_mask(truth(ordered16(l.s[0]), ordered16(l.s[1]))) & ~unordered(l);
    }
    static u64 unordered(const Lanes& l) { return to_mask(is_nan16(l.s[0]) | is_nan16(l.s[1])); }
};

struct F32 {
    template <class F>
    static u64 ordered(const Lanes& l, F truth) {
        return to_mask(truth(load<f32v>(l.s[0]), load<f32v>(l.s[1])));
    }
    static u64 unordered(const Lanes& l) {
        const f32v a = load<f32v>(l.s[0]), b = load<f32v>(l.s[1]);
        return to_mask((a != a) | (b != b));
    }
};

struct F64 {
    static f64v get(const u32* s) { return __builtin_bit_cast(f64v, load64(s)); }
    template <class F>
    static u64 ordered(const Lanes& l, F truth) {
        return to_mask(truth(get(l.s[0]), get(l.s[1])));
    }
    static u64 unordered(const Lanes& l) {
        const f64v a = get(l.s[0]), b = get(l.s[1]);
        return to_mask((a != a) | (b != b));
    }
};

constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kNotGreater = [](auto a, auto b) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kDiffer = [](auto a, auto b) { return (a < b) | (a > b); };
constexpr auto kNotLess = [](auto a, auto b) { return a >= b; };

template <bool Exec>
void finish(Lanes& l, u64 mask) {
    l.mask_out = mask & l.exec;
    if constexpr (Exec) l.wave->set_pair(kExec, l.mask_out);
}

template <bool Exec, class As, auto F>
void compare(Lanes& l) {
    finish<Exec>(l, As::ordered(l, F));
}

template <bool Exec, class As, auto F>
void opposite(Lanes& l) {
    finish<Exec>(l, ~As::ordered(l, F));
}

template <bool Exec, class As, bool Unordered>
void order(Lanes& l) {
    finish<Exec>(l, Unordered ? As::unordered(l) : ~As::unordered(l));
}

template <bool Exec, bool Value>
void constant(Lanes& l) {
    finish<Exec>(l, Value ? kAllLanes : 0);
}

// --- classes ----------------------------------------------------------------------------------------------------

enum ClassBit {
    kSignallingNan,
    kQuietNan,
    kMinusInfinity,
    kMinusNormal,
    kMinusDenormal,
    kMinusZero,
    kPlusZero,
    kPlusDenormal,
    kPlusNormal,
    kPlusInfinity,
};

template <class Bits, int Mantissa>
int class_of(Bits bits) {
    constexpr int kWidth = 8 * sizeof(Bits), kExponent = kWidth - 1 - Mantissa;
    const bool minus = bits >> (kWidth - 1) & 1;
    const u64 exponent = u64{bits} >> Mantissa & ((u64{1} << kExponent) - 1);
    const u64 mantissa = u64{bits} & ((u64{1} << Mantissa) - 1);
    if (exponent == (u64{1} << kExponent) - 1) {
        if (mantissa) return mantissa >> (Mantissa - 1) ? kQuietNan : kSignallingNan;
        return minus ? kMinusInfinity : kPlusInfinity;
    }
    if (exponent) return minus ? kMinusNormal : kPlusNormal;
    if (mantissa) return minus ? kMinusDenormal : kPlusDenormal;
    return minus ? kMinusZero : kPlusZero;
}

// The second operand has a bit for each class that counts. A denormal is one in every MODE: LLVM's is.fpclass, which does
// not depend on the environment, is this instruction.
template <bool Exec, class Bits, int Mantissa>
void is_class(Lanes& l) {
    u64 mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        Bits bits;
        if constexpr (sizeof(Bits) == 8) bits = lane64(l.s[0], lane);
        else bits = static_cast<Bits>(l.s[0][lane]);
        mask |= u64{l.s[1][lane] >> class_of<Bits, Mantissa>(bits) & 1} << lane;
    }
    finish<Exec>(l, mask);
}

// The sixteen comparisons of a type, from opcode `first` on.
#define EMU_COMPARISONS(prefix, exec, type, first, As)                                                                   \
    {prefix "f_" type, Format::Vopc, first + 0, "m=" type "," type, constant<exec, false>, nullptr, 0, 0},               \
        {prefix "lt_" type, Format::Vopc, first + 1, "m=" type "," type, compare<exec, As, kLess>, nullptr, 0, 0},       \
        {prefix "eq_" type, Format::Vopc, first + 2, "m=" type "," type, compare<exec, As, kEqual>, nullptr, 0, 0},      \
        {prefix "le_" type, Format::Vopc, first + 3, "m=" type "," type, compare<exec, As, kNotGreater>, nullptr, 0, 0}, \
        {prefix "gt_" type, Format::Vopc, first + 4, "m=" type "," type, compare<exec, As, kGreater>, nullptr, 0, 0},    \
        {prefix "lg_" type, Format::Vopc, first + 5, "m=" type "," type, compare<exec, As, kDiffer>, nullptr, 0, 0},     \
        {prefix "ge_" type, Format::Vopc, first + 6, "m=" type "," type, compare<exec, As, kNotLess>, nullptr, 0, 0},    \
        {prefix "o_" type, Format::Vopc, first + 7, "m=" type "," type, order<exec, As, false>, nullptr, 0, 0},          \
        {prefix "u_" type, Format::Vopc, first + 8, "m=" type "," type, order<exec, As, true>, nullptr, 0, 0},           \
        {prefix "nge_" type, Format::Vopc, first + 9, "m=" type "," type, opposite<exec, As, kNotLess>, nullptr, 0, 0},  \
        {prefix "nlg_" type, Format::Vopc, first + 10, "m=" type "," type, opposite<exec, As, kDiffer>, nullptr, 0, 0},  \
        {prefix "ngt_" type, Format::Vopc, first + 11, "m=" type "," type, opposite<exec, As, kGreater>, nullptr, 0, 0}, \
        {prefix "nle_" type,                                                                                             \
         Format::Vopc,                                                                                                   \
         first + 12,                                                                                                     \
         "m=" type "," type,                                                                                             \
         opposite<exec, As, kNotGreater>,                                                                                \
         nullptr,                                                                                                        \
         0,                                                                                                              \
         0},                                                                                                             \
        {prefix "neq_" type, Format::Vopc, first + 13, "m=" type "," type, opposite<exec, As, kEqual>, nullptr, 0, 0},   \
        {prefix "nlt_" type, Format::Vopc, first + 14, "m=" type "," type, opposite<exec, As, kLess>, nullptr, 0, 0},    \
        {prefix "tru_" type, Format::Vopc, first + 15, "m=" type "," type, constant<exec, true>, nullptr, 0, 0}

constexpr Row kRows[] = {
    {"v_cmp_class_f32", Format::Vopc, 0x10, "m=f32,b32", is_class<false, u32, 23>, nullptr, kRawSources, 0},
    {"v_cmpx_class_f32", Format::Vopc, 0x11, "m=f32,b32", is_class<true, u32, 23>, nullptr, kRawSources, 0},
    {"v_cmp_class_f64", Format::Vopc, 0x12, "m=f64,b32", is_class<false, u64, 52>, nullptr, kRawSources, 0},
    {"v_cmpx_class_f64", Format::Vopc, 0x13, "m=f64,b32", is_class<true, u64, 52>, nullptr, kRawSources, 0},
    {"v_cmp_class_f16", Format::Vopc, 0x14, "m=f16,b32", is_class<false, u16, 10>, nullptr, kRawSources, 0},
    {"v_cmpx_class_f16", Format::Vopc, 0x15, "m=f16,b32", is_class<true, u16, 10>, nullptr, kRawSources, 0},
    EMU_COMPARISONS("v_cmp_", false, "f16", 0x20, F16),
    EMU_COMPARISONS("v_cmpx_", true, "f16", 0x30, F16),
    EMU_COMPARISONS("v_cmp_", false, "f32", 0x40, F32),
    EMU_COMPARISONS("v_cmpx_", true, "f32", 0x50, F32),
    EMU_COMPARISONS("v_cmp_", false, "f64", 0x60, F64),
    EMU_COMPARISONS("v_cmpx_", true, "f64", 0x70, F64),
};

#undef EMU_COMPARISONS

}  // namespace

std::span<const Row> vopc_float_rows() { return kRows; }

}  // namespace emu
