// SPDX-License-Identifier: MIT
// Scalar arithmetic with two operands: SOP2, SOPC and SOPK (what changes the flow is in salu_flow.cpp, one operand in
// salu_bits.cpp).
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapters "SOP2", "SOPC", "SOPK". SCC is what
// each entry there says: a carry, a signed overflow, "result is not zero", "the first operand was taken", or untouched.
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

// --- how operands come and results go ---------------------------------------------------------------------------

// SCC: whether the result is not zero.
template <auto F>
void tested32(Wave& w, const Op& op) {
    const u32 result = F(scalar32(w, op.src[0]), scalar32(w, op.src[1]));
    set_scalar32(w, op.dst, result);
    w.scc = result != 0;
}

template <auto F>
void tested64(Wave& w, const Op& op) {
    const u64 result = F(scalar64(w, op.src[0]), scalar64(w, op.src[1]));
    set_scalar64(w, op.dst, result);
    w.scc = result != 0;
}

// 64 bits and a 32-bit count.
template <auto F>
void tested64_by32(Wave& w, const Op& op) {
    const u64 result = F(scalar64(w, op.src[0]), scalar32(w, op.src[1]));
    set_scalar64(w, op.dst, result);
    w.scc = result != 0;
}

template <auto F>
void untested32(Wave& w, const Op& op) {
    set_scalar32(w, op.dst, F(scalar32(w, op.src[0]), scalar32(w, op.src[1])));
}

// A sum of 64 bits whose bits above 32 are the carry (or borrow).
template <auto F>
void carrying(Wave& w, const Op& op) {
    const u64 result = F(u64{scalar32(w, op.src[0])}, u64{scalar32(w, op.src[1])}, u64{w.scc});
    set_scalar32(w, op.dst, static_cast<u32>(result));
    w.scc = result >> 32 != 0;
}

// SCC: whether the first operand was taken.
template <auto First, class T>
void choosing(Wave& w, const Op& op) {
    const T a = static_cast<T>(scalar32(w, op.src[0])), b = static_cast<T>(scalar32(w, op.src[1]));
    const bool first = First(a, b);
    set_scalar32(w, op.dst, static_cast<u32>(first ? a : b));
    w.scc = first;
}

template <auto F>
void comparing_i32(Wave& w, const Op& op) {
    w.scc = F(static_cast<i32>(scalar32(w, op.src[0])), static_cast<i32>(scalar32(w, op.src[1])));
}

template <auto F>
void comparing_u32(Wave& w, const Op& op) {
    w.scc = F(scalar32(w, op.src[0]), scalar32(w, op.src[1]));
}

template <auto F>
void comparing_u64(Wave& w, const Op& op) {
    w.scc = F(scalar64(w, op.src[0]), scalar64(w, op.src[1]));
}

// SOPK: the constant's 16 bits are extended as the comparison's type is.
template <auto F>
void comparing_k_i32(Wave& w, const Op& op) {
    w.scc = F(static_cast<i32>(scalar32(w, op.src[0])), op.inst.simm);
}

template <auto F>
void comparing_k_u32(Wave& w, const Op& op) {
    w.scc = F(scalar32(w, op.src[0]), u32{static_cast<u16>(op.inst.simm)});
}

constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kDiffer = [](auto a, auto b) { return a != b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kNotLess = [](auto a, auto b) { return a >= b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kNotGreater = [](auto a, auto b) { return a <= b; };

// --- arithmetic -------------------------------------------------------------------------------------------------

void add_with_overflow(Wave& w, const Operand& dst, u32 a, u32 b) {
    const u32 sum = a + b;
    set_scalar32(w, dst, sum);
    w.scc = (~(a ^ b) & (a ^ sum)) >> 31;
}

void s_add_i32(Wave& w, const Op& op) { add_with_overflow(w, op.dst, scalar32(w, op.src[0]), scalar32(w, op.src[1])); }

void s_addk_i32(Wave& w, const Op& op) {
    add_with_overflow(w, op.dst, scalar32(w, op.dst), static_cast<u32>(op.inst.simm));
}

void s_sub_i32(Wave& w, const Op& op) {
    const u32 a = scalar32(w, op.src[0]), b = scalar32(w, op.src[1]), difference = a - b;
    set_scalar32(w, op.dst, difference);
    w.scc = ((a ^ b) & (a ^ difference)) >> 31;
}

void s_mulk_i32(Wave& w, const Op& op) {
    set_scalar32(w, op.dst, scalar32(w, op.dst) * static_cast<u32>(op.inst.simm));
}

void s_movk_i32(Wave& w, const Op& op) { set_scalar32(w, op.dst, static_cast<u32>(op.inst.simm)); }

void s_cmovk_i32(Wave& w, const Op& op) {
    if (w.scc) s_movk_i32(w, op);
}

void s_cselect_b32(Wave& w, const Op& op) { set_scalar32(w, op.dst, scalar32(w, op.src[w.scc ? 0 : 1])); }
void s_cselect_b64(Wave& w, const Op& op) { set_scalar64(w, op.dst, scalar64(w, op.src[w.scc ? 0 : 1])); }

u32 absolute_difference(u32 a, u32 b) {
    const u32 difference = a - b;
    return static_cast<i32>(difference) < 0 ? 0 - difference : difference;
}

template <int Shift>
u64 shifted_sum(u64 a, u64 b, u64) {
    return (a << Shift) + b;
}

// --- bits -------------------------------------------------------------------------------------------------------

u32 ashr32(u32 a, u32 b) { return static_cast<u32>(static_cast<i32>(a) >> (b & 31)); }
u64 ashr64(u64 a, u32 b) { return static_cast<u64>(static_cast<i64>(a) >> (b & 63)); }

// Fields: the second operand has the offset in bits 4:0 (5:0 of 64), the width in bits 22:16; a width beyond the operand's
// leaves all of it.
u64 bfe_u64(u64 a, u32 field) {
    const u32 width = field >> 16 & 0x7f;
    const u64 shifted = a >> (field & 63);
    return width >= 64 ? shifted : shifted & ((u64{1} << width) - 1);
}

u64 bfe_i64(u64 a, u32 field) {
    const u32 width = field >> 16 & 0x7f;
    const u64 shifted = ashr64(a, field);
    return width >= 64 ? shifted : width == 0 ? 0 : static_cast<u64>(sign_extend(shifted, static_cast<int>(width)));
}

u32 bfe_u32(u32 a, u32 field) {
    const u32 width = field >> 16 & 0x7f, shifted = a >> (field & 31);
    return width >= 32 ? shifted : shifted & ((1u << width) - 1);
}

u32 bfe_i32(u32 a, u32 field) {
    const u32 width = field >> 16 & 0x7f, shifted = ashr32(a, field);
    return width >= 32 ? shifted : width == 0 ? 0 : static_cast<u32>(sign_extend(shifted, static_cast<int>(width)));
}

void s_bfm_b64(Wave& w, const Op& op) {
    const u32 width = scalar32(w, op.src[0]) & 63, offset = scalar32(w, op.src[1]) & 63;
    set_scalar64(w, op.dst, ((u64{1} << width) - 1) << offset);
}

template <bool Wanted>
void bitcmp32(Wave& w, const Op& op) {
    const u32 value = scalar32(w, op.src[0]);
    w.scc = (value >> (scalar32(w, op.src[1]) & 31) & 1) == Wanted;
}

template <bool Wanted>
void bitcmp64(Wave& w, const Op& op) {
    const u64 value = scalar64(w, op.src[0]);
    w.scc = (value >> (scalar32(w, op.src[1]) & 63) & 1) == Wanted;
}

u32 mul_hi_u32(u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }
u32 mul_hi_i32(u32 a, u32 b) { return static_cast<u32>(i64{static_cast<i32>(a)} * static_cast<i32>(b) >> 32); }

// Logic, once for both widths.
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kAndN2 = [](auto a, auto b) { return a & ~b; };
constexpr auto kOrN2 = [](auto a, auto b) { return a | ~b; };
constexpr auto kNand = [](auto a, auto b) { return ~(a & b); };
constexpr auto kNor = [](auto a, auto b) { return ~(a | b); };
constexpr auto kXnor = [](auto a, auto b) { return ~(a ^ b); };

constexpr const char *k32 = "u32=u32,u32", *kI32 = "i32=i32,i32", *kB32 = "b32=b32,b32", *kB64 = "b64=b64,b64",
                     *kCompare32 = "=u32,u32", *kCompareI32 = "=i32,i32", *kCompareK = "=u32", *kCompareKI = "=i32";

constexpr Row kRows[] = {
    {"s_add_u32", Format::Sop2, 0, k32, nullptr, carrying<[](u64 a, u64 b, u64) { return a + b; }>, 0, 0},
    {"s_sub_u32", Format::Sop2, 1, k32, nullptr, carrying<[](u64 a, u64 b, u64) { return a - b; }>, 0, 0},
    {"s_add_i32", Format::Sop2, 2, kI32, nullptr, s_add_i32, 0, 0},
    {"s_sub_i32", Format::Sop2, 3, kI32, nullptr, s_sub_i32, 0, 0},
    {"s_addc_u32", Format::Sop2, 4, k32, nullptr, carrying<[](u64 a, u64 b, u64 c) { return a + b + c; }>, 0, 0},
    {"s_subb_u32", Format::Sop2, 5, k32, nullptr, carrying<[](u64 a, u64 b, u64 c) { return a - b - c; }>, 0, 0},
    {"s_min_i32", Format::Sop2, 6, kI32, nullptr, choosing<kLess, i32>, 0, 0},
    {"s_min_u32", Format::Sop2, 7, k32, nullptr, choosing<kLess, u32>, 0, 0},
    {"s_max_i32", Format::Sop2, 8, kI32, nullptr, choosing<kNotLess, i32>, 0, 0},
    {"s_max_u32", Format::Sop2, 9, k32, nullptr, choosing<kNotLess, u32>, 0, 0},
    {"s_cselect_b32", Format::Sop2, 10, kB32, nullptr, s_cselect_b32, 0, 0},
    {"s_cselect_b64", Format::Sop2, 11, kB64, nullptr, s_cselect_b64, 0, 0},
    {"s_and_b32", Format::Sop2, 12, kB32, nullptr, tested32<kAnd>, 0, 0},
    {"s_and_b64", Format::Sop2, 13, kB64, nullptr, tested64<kAnd>, 0, 0},
    {"s_or_b32", Format::Sop2, 14, kB32, nullptr, tested32<kOr>, 0, 0},
    {"s_or_b64", Format::Sop2, 15, kB64, nullptr, tested64<kOr>, 0, 0},
    {"s_xor_b32", Format::Sop2, 16, kB32, nullptr, tested32<kXor>, 0, 0},
    {"s_xor_b64", Format::Sop2, 17, kB64, nullptr, tested64<kXor>, 0, 0},
    {"s_andn2_b32", Format::Sop2, 18, kB32, nullptr, tested32<kAndN2>, 0, 0},
    {"s_andn2_b64", Format::Sop2, 19, kB64, nullptr, tested64<kAndN2>, 0, 0},
    {"s_orn2_b32", Format::Sop2, 20, kB32, nullptr, tested32<kOrN2>, 0, 0},
    {"s_orn2_b64", Format::Sop2, 21, kB64, nullptr, tested64<kOrN2>, 0, 0},
    {"s_nand_b32", Format::Sop2, 22, kB32, nullptr, tested32<kNand>, 0, 0},
    {"s_nand_b64", Format::Sop2, 23, kB64, nullptr, tested64<kNand>, 0, 0},
    {"s_nor_b32", Format::Sop2, 24, kB32, nullptr, tested32<kNor>, 0, 0},
    {"s_nor_b64", Format::Sop2, 25, kB64, nullptr, tested64<kNor>, 0, 0},
    {"s_xnor_b32", Format::Sop2, 26, kB32, nullptr, tested32<kXnor>, 0, 0},
    {"s_xnor_b64", Format::Sop2, 27, kB64, nullptr, tested64<kXnor>, 0, 0},
    {"s_lshl_b32", Format::Sop2, 28, "b32=b32,u32", nullptr, tested32<[](u32 a, u32 b) { return a << (b & 31); }>, 0,
     0},
    {"s_lshl_b64", Format::Sop2, 29, "b64=b64,u32", nullptr, tested64_by32<[](u64 a, u32 b) { return a << (b & 63); }>,
     0, 0},
    {"s_lshr_b32", Format::Sop2, 30, "b32=b32,u32", nullptr, tested32<[](u32 a, u32 b) { return a >> (b & 31); }>, 0,
     0},
    {"s_lshr_b64", Format::Sop2, 31, "b64=b64,u32", nullptr, tested64_by32<[](u64 a, u32 b) { return a >> (b & 63); }>,
     0, 0},
    {"s_ashr_i32", Format::Sop2, 32, "i32=i32,u32", nullptr, tested32<ashr32>, 0, 0},
    {"s_ashr_i64", Format::Sop2, 33, "i64=i64,u32", nullptr, tested64_by32<ashr64>, 0, 0},
    {"s_bfm_b32", Format::Sop2, 34, kB32, nullptr,
     untested32<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>, 0, 0},
    {"s_bfm_b64", Format::Sop2, 35, "b64=b32,b32", nullptr, s_bfm_b64, 0, 0},
    {"s_mul_i32", Format::Sop2, 36, kI32, nullptr, untested32<[](u32 a, u32 b) { return a * b; }>, 0, 0},
    {"s_bfe_u32", Format::Sop2, 37, k32, nullptr, tested32<bfe_u32>, 0, 0},
    {"s_bfe_i32", Format::Sop2, 38, "i32=i32,u32", nullptr, tested32<bfe_i32>, 0, 0},
    {"s_bfe_u64", Format::Sop2, 39, "u64=u64,u32", nullptr, tested64_by32<bfe_u64>, 0, 0},
    {"s_bfe_i64", Format::Sop2, 40, "i64=i64,u32", nullptr, tested64_by32<bfe_i64>, 0, 0},
    {"s_absdiff_i32", Format::Sop2, 42, kI32, nullptr, tested32<absolute_difference>, 0, 0},
    {"s_mul_hi_u32", Format::Sop2, 44, k32, nullptr, untested32<mul_hi_u32>, 0, 0},
    {"s_mul_hi_i32", Format::Sop2, 45, kI32, nullptr, untested32<mul_hi_i32>, 0, 0},
    {"s_lshl1_add_u32", Format::Sop2, 46, k32, nullptr, carrying<shifted_sum<1>>, 0, 0},
    {"s_lshl2_add_u32", Format::Sop2, 47, k32, nullptr, carrying<shifted_sum<2>>, 0, 0},
    {"s_lshl3_add_u32", Format::Sop2, 48, k32, nullptr, carrying<shifted_sum<3>>, 0, 0},
    {"s_lshl4_add_u32", Format::Sop2, 49, k32, nullptr, carrying<shifted_sum<4>>, 0, 0},
    {"s_pack_ll_b32_b16", Format::Sop2, 50, kB32, nullptr,
     untested32<[](u32 a, u32 b) { return (a & 0xffff) | b << 16; }>, 0, 0},
    {"s_pack_lh_b32_b16", Format::Sop2, 51, kB32, nullptr,
     untested32<[](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }>, 0, 0},
    {"s_pack_hh_b32_b16", Format::Sop2, 52, kB32, nullptr,
     untested32<[](u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); }>, 0, 0},

    {"s_cmp_eq_i32", Format::Sopc, 0, kCompareI32, nullptr, comparing_i32<kEqual>, 0, 0},
    {"s_cmp_lg_i32", Format::Sopc, 1, kCompareI32, nullptr, comparing_i32<kDiffer>, 0, 0},
    {"s_cmp_gt_i32", Format::Sopc, 2, kCompareI32, nullptr, comparing_i32<kGreater>, 0, 0},
    {"s_cmp_ge_i32", Format::Sopc, 3, kCompareI32, nullptr, comparing_i32<kNotLess>, 0, 0},
    {"s_cmp_lt_i32", Format::Sopc, 4, kCompareI32, nullptr, comparing_i32<kLess>, 0, 0},
    {"s_cmp_le_i32", Format::Sopc, 5, kCompareI32, nullptr, comparing_i32<kNotGreater>, 0, 0},
    {"s_cmp_eq_u32", Format::Sopc, 6, kCompare32, nullptr, comparing_u32<kEqual>, 0, 0},
    {"s_cmp_lg_u32", Format::Sopc, 7, kCompare32, nullptr, comparing_u32<kDiffer>, 0, 0},
    {"s_cmp_gt_u32", Format::Sopc, 8, kCompare32, nullptr, comparing_u32<kGreater>, 0, 0},
    {"s_cmp_ge_u32", Format::Sopc, 9, kCompare32, nullptr, comparing_u32<kNotLess>, 0, 0},
    {"s_cmp_lt_u32", Format::Sopc, 10, kCompare32, nullptr, comparing_u32<kLess>, 0, 0},
    {"s_cmp_le_u32", Format::Sopc, 11, kCompare32, nullptr, comparing_u32<kNotGreater>, 0, 0},
    {"s_bitcmp0_b32", Format::Sopc, 12, "=b32,u32", nullptr, bitcmp32<false>, 0, 0},
    {"s_bitcmp1_b32", Format::Sopc, 13, "=b32,u32", nullptr, bitcmp32<true>, 0, 0},
    {"s_bitcmp0_b64", Format::Sopc, 14, "=b64,u32", nullptr, bitcmp64<false>, 0, 0},
    {"s_bitcmp1_b64", Format::Sopc, 15, "=b64,u32", nullptr, bitcmp64<true>, 0, 0},
    {"s_cmp_eq_u64", Format::Sopc, 18, "=u64,u64", nullptr, comparing_u64<kEqual>, 0, 0},
    {"s_cmp_lg_u64", Format::Sopc, 19, "=u64,u64", nullptr, comparing_u64<kDiffer>, 0, 0},

    {"s_movk_i32", Format::Sopk, 0, "i32=", nullptr, s_movk_i32, 0, 0},
    {"s_cmovk_i32", Format::Sopk, 1, "i32=d", nullptr, s_cmovk_i32, 0, 0},
    {"s_cmpk_eq_i32", Format::Sopk, 2, kCompareKI, nullptr, comparing_k_i32<kEqual>, 0, 0},
    {"s_cmpk_lg_i32", Format::Sopk, 3, kCompareKI, nullptr, comparing_k_i32<kDiffer>, 0, 0},
    {"s_cmpk_gt_i32", Format::Sopk, 4, kCompareKI, nullptr, comparing_k_i32<kGreater>, 0, 0},
    {"s_cmpk_ge_i32", Format::Sopk, 5, kCompareKI, nullptr, comparing_k_i32<kNotLess>, 0, 0},
    {"s_cmpk_lt_i32", Format::Sopk, 6, kCompareKI, nullptr, comparing_k_i32<kLess>, 0, 0},
    {"s_cmpk_le_i32", Format::Sopk, 7, kCompareKI, nullptr, comparing_k_i32<kNotGreater>, 0, 0},
    {"s_cmpk_eq_u32", Format::Sopk, 8, kCompareK, nullptr, comparing_k_u32<kEqual>, 0, 0},
    {"s_cmpk_lg_u32", Format::Sopk, 9, kCompareK, nullptr, comparing_k_u32<kDiffer>, 0, 0},
    {"s_cmpk_gt_u32", Format::Sopk, 10, kCompareK, nullptr, comparing_k_u32<kGreater>, 0, 0},
    {"s_cmpk_ge_u32", Format::Sopk, 11, kCompareK, nullptr, comparing_k_u32<kNotLess>, 0, 0},
    {"s_cmpk_lt_u32", Format::Sopk, 12, kCompareK, nullptr, comparing_k_u32<kLess>, 0, 0},
    {"s_cmpk_le_u32", Format::Sopk, 13, kCompareK, nullptr, comparing_k_u32<kNotGreater>, 0, 0},
    {"s_addk_i32", Format::Sopk, 14, "i32=d", nullptr, s_addk_i32, 0, 0},
    {"s_mulk_i32", Format::Sopk, 15, "i32=d", nullptr, s_mulk_i32, 0, 0},
};

}  // namespace

std::span<const Row> salu_rows() { return kRows; }

}  // namespace emu
