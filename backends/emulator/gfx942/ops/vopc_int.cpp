// SPDX-License-Identifier: MIT
// Comparisons of integers (VOPC). v_cmpx_* also make the result the new EXEC.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "VOPC".
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

// What l.s[] holds as elements that compare like the type: 16-bit values come zero-extended.
struct AsI16 {
    static i32v get(const u32* s) { return (load<i32v>(s) << 16) >> 16; }
};
struct AsU16 {
    static i32v get(const u32* s) { return load<i32v>(s) & 0xffff; }
};
struct AsI32 {
    static i32v get(const u32* s) { return load<i32v>(s); }
};
struct AsU32 {
    static u32v get(const u32* s) { return load<u32v>(s); }
};
struct AsI64 {
    static i64v get(const u32* s) { return __builtin_convertvector(load64(s), i64v); }
};
struct AsU64 {
    static u64v get(const u32* s) { return load64(s); }
};

constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kNotGreater = [](auto a, auto b) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kDiffer = [](auto a, auto b) { return a != b; };
constexpr auto kNotLess = [](auto a, auto b) { return a >= b; };

template <bool Exec>
void finish(Lanes& l, u64 mask) {
    l.mask_out = mask & l.exec;
    if constexpr (Exec) l.wave->set_pair(kExec, l.mask_out);
}

template <bool Exec, class As, auto F>
void compare(Lanes& l) {
    finish<Exec>(l, to_mask(F(As::get(l.s[0]), As::get(l.s[1]))));
}

template <bool Exec, bool Value>
void constant(Lanes& l) {
    finish<Exec>(l, Value ? kAllLanes : 0);
}

// The eight comparisons of a type, from opcode `first` on.
#define EMU_COMPARISONS(prefix, exec, type, first, As)                                                                   \
    {prefix "f_" type, Format::Vopc, first + 0, "m=" type "," type, constant<exec, false>, nullptr, 0, 0},               \
        {prefix "lt_" type, Format::Vopc, first + 1, "m=" type "," type, compare<exec, As, kLess>, nullptr, 0, 0},       \
        {prefix "eq_" type, Format::Vopc, first + 2, "m=" type "," type, compare<exec, As, kEqual>, nullptr, 0, 0},      \
        {prefix "le_" type, Format::Vopc, first + 3, "m=" type "," type, compare<exec, As, kNotGreater>, nullptr, 0, 0}, \
        {prefix "gt_" type, Format::Vopc, first + 4, "m=" type "," type, compare<exec, As, kGreater>, nullptr, 0, 0},    \
        {prefix "ne_" type, Format::Vopc, first + 5, "m=" type "," type, compare<exec, As, kDiffer>, nullptr, 0, 0},     \
        {prefix "ge_" type, Format::Vopc, first + 6, "m=" type "," type, compare<exec, As, kNotLess>, nullptr, 0, 0},    \
        {prefix "t_" type, Format::Vopc, first + 7, "m=" type "," type, constant<exec, true>, nullptr, 0, 0}

constexpr Row kRows[] = {
    EMU_COMPARISONS("v_cmp_", false, "i16", 0xa0, AsI16), EMU_COMPARISONS("v_cmp_", false, "u16", 0xa8, AsU16),
    EMU_COMPARISONS("v_cmpx_", true, "i16", 0xb0, AsI16), EMU_COMPARISONS("v_cmpx_", true, "u16", 0xb8, AsU16),
    EMU_COMPARISONS("v_cmp_", false, "i32", 0xc0, AsI32), EMU_COMPARISONS("v_cmp_", false, "u32", 0xc8, AsU32),
    EMU_COMPARISONS("v_cmpx_", true, "i32", 0xd0, AsI32), EMU_COMPARISONS("v_cmpx_", true, "u32", 0xd8, AsU32),
    EMU_COMPARISONS("v_cmp_", false, "i64", 0xe0, AsI64), EMU_COMPARISONS("v_cmp_", false, "u64", 0xe8, AsU64),
    EMU_COMPARISONS("v_cmpx_", true, "i64", 0xf0, AsI64), EMU_COMPARISONS("v_cmpx_", true, "u64", 0xf8, AsU64),
};

#undef EMU_COMPARISONS

}  // namespace

std::span<const Row> vopc_int_rows() { return kRows; }

}  // namespace emu
