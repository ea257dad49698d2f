// SPDX-License-Identifier: MIT
// 64-bit integer vector arithmetic.
#include <span>

#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

u64v widen(const u32* words) { return __builtin_convertvector(load<u32v>(words), u64v); }
i64v widen_signed(const u32* words) { return __builtin_convertvector(load<i32v>(words), i64v); }

// The ISA guide takes three bits of the count.
void v_lshl_add_u64(Lanes& l) { store64(l.d, (load64(l.s[0]) << (widen(l.s[1]) & 7)) + load64(l.s[2])); }

void v_lshlrev_b64(Lanes& l) { store64(l.d, load64(l.s[1]) << (widen(l.s[0]) & 63)); }
void v_lshrrev_b64(Lanes& l) { store64(l.d, load64(l.s[1]) >> (widen(l.s[0]) & 63)); }

void v_ashrrev_i64(Lanes& l) {
    const i64v value = __builtin_bit_cast(i64v, load64(l.s[1]));
    store64(l.d, __builtin_bit_cast(u64v, value >> __builtin_bit_cast(i64v, widen(l.s[0]) & 63)));
}

// The second destination is bit 64 of the exact sum.
void v_mad_u64_u32(Lanes& l) {
    const u64v product = widen(l.s[0]) * widen(l.s[1]);
    const u64v sum = product + load64(l.s[2]);
    const i64v carry = sum < product;
    l.mask_out = to_mask(carry);
    store64(l.d, l.clamp() ? sum | __builtin_bit_cast(u64v, carry) : sum);
}

// Likewise: bit 64 of the exact, signed sum, which is its sign.
void v_mad_i64_i32(Lanes& l) {
    const u64v product = __builtin_bit_cast(u64v, widen_signed(l.s[0]) * widen_signed(l.s[1]));
    const u64v addend = load64(l.s[2]);
    const u64v sum = product + addend;
    const i64v overflow = __builtin_bit_cast(i64v, (product ^ sum) & (addend ^ sum)) >> 63;
    const i64v sign = (__builtin_bit_cast(i64v, sum) >> 63) ^ overflow;
    l.mask_out = to_mask(sign);
    const i64v limit = sign ^ i64v(INT64_MAX);
    store64(l.d, l.clamp() ? __builtin_bit_cast(u64v, overflow ? limit : __builtin_bit_cast(i64v, sum)) : sum);
}

using enum Format;
constexpr Row kRows[] = {
    {"v_mad_u64_u32", Vop3, 488, "u64,m=u32,u32,u64", v_mad_u64_u32, nullptr, kDoubleRate, 0},
    {"v_mad_i64_i32", Vop3, 489, "i64,m=i32,i32,i64", v_mad_i64_i32, nullptr, kDoubleRate, 0},
    {"v_lshl_add_u64", Vop3, 520, "u64=u64,u32,u64", v_lshl_add_u64, nullptr, kDoubleRate, 0},
    {"v_lshlrev_b64", Vop3, 655, "u64=u32,u64", v_lshlrev_b64, nullptr, kDoubleRate, 0},
    {"v_lshrrev_b64", Vop3, 656, "u64=u32,u64", v_lshrrev_b64, nullptr, kDoubleRate, 0},
    {"v_ashrrev_i64", Vop3, 657, "i64=u32,i64", v_ashrrev_i64, nullptr, kDoubleRate, 0},
};

}  // namespace

std::span<const Row> vop_int64_rows() { return kRows; }

}  // namespace emu
