// SPDX-License-Identifier: MIT
// Scalar arithmetic with one operand: SOP1 (what changes the flow is in salu_flow.cpp).
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "SOP1".
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

// SCC: whether the result is not zero.
template <auto F>
void tested32(Wave& w, const Op& op) {
    const u32 result = F(scalar32(w, op.src[0]));
    set_scalar32(w, op.dst, result);
    w.scc = result != 0;
}

template <auto F>
void tested64(Wave& w, const Op& op) {
    const u64 result = F(scalar64(w, op.src[0]));
    set_scalar64(w, op.dst, result);
    w.scc = result != 0;
}

template <auto F>
void tested32_of64(Wave& w, const Op& op) {
    const u32 result = F(scalar64(w, op.src[0]));
    set_scalar32(w, op.dst, result);
    w.scc = result != 0;
}

template <auto F>
void untested32(Wave& w, const Op& op) {
    set_scalar32(w, op.dst, F(scalar32(w, op.src[0])));
}

template <auto F>
void untested64(Wave& w, const Op& op) {
    set_scalar64(w, op.dst, F(scalar64(w, op.src[0])));
}

template <auto F>
void untested32_of64(Wave& w, const Op& op) {
    set_scalar32(w, op.dst, F(scalar64(w, op.src[0])));
}

template <auto F>
void untested64_of32(Wave& w, const Op& op) {
    set_scalar64(w, op.dst, F(scalar32(w, op.src[0])));
}

constexpr auto kSame = [](auto a) { return a; };
constexpr auto kNot = [](auto a) { return ~a; };

void s_cmov_b32(Wave& w, const Op& op) {
    if (w.scc) untested32<kSame>(w, op);
}

void s_cmov_b64(Wave& w, const Op& op) {
    if (w.scc) untested64<kSame>(w, op);
}

// One bit for each four, in place of its lowest.
template <class T>
T any_of_four(T a) {
    a |= a >> 1;
    a |= a >> 2;
    return a & static_cast<T>(0x1111111111111111);
}

// Whole quads: all four bits if any.
template <class T>
T wqm(T a) {
    return any_of_four(a) * T{15};
}

// One bit for each four, next to each other.
template <class T>
T quadmask(T a) {
    T packed = 0;
    for (unsigned quad = 0; quad < sizeof(T) * 2; ++quad) packed |= (any_of_four(a) >> (4 * quad) & 1) << quad;
    return packed;
}

template <class T>
T brev(T a) {
    if constexpr (sizeof(T) == 4) return __builtin_bitreverse32(a);
    else return __builtin_bitreverse64(a);
}

// The place of the first one, from the lowest bit or from the highest; -1: none.
template <class T>
u32 first_one(T a) {
    return a ? static_cast<u32>(std::countr_zero(a)) : ~u32{0};
}

template <class T>
u32 leading_zeros(T a) {
    return a ? static_cast<u32>(std::countl_zero(a)) : ~u32{0};
}

// Where from the highest bit the first one lies that is not like the sign; -1: all bits are alike.
template <class T>
u32 leading_signs(T a) {
    constexpr int kTop = 8 * sizeof(T) - 1;
    return leading_zeros(static_cast<T>(a ^ (0 - (a >> kTop))));
}

u64 replicated(u32 a) {
    u64 spread = 0;
    for (int bit = 0; bit < 32; ++bit) spread |= u64{3 * (a >> bit & 1)} << (2 * bit);
    return spread;
}

template <bool Value>
void bitset32(Wave& w, const Op& op) {
    const u32 bit = 1u << (scalar32(w, op.src[0]) & 31), old = scalar32(w, op.dst);
    set_scalar32(w, op.dst, Value ? old | bit : old & ~bit);
}

template <bool Value>
void bitset64(Wave& w, const Op& op) {
    const u64 bit = u64{1} << (scalar32(w, op.src[0]) & 63), old = scalar64(w, op.dst);
    set_scalar64(w, op.dst, Value ? old | bit : old & ~bit);
}

// EXEC becomes F(source, EXEC). The destination gets the old EXEC, or with `Write` the new one.
template <auto F, bool Write = false>
void exec_of(Wave& w, const Op& op) {
    const u64 before = w.exec(), after = F(scalar64(w, op.src[0]), before);
    w.set_pair(kExec, after);
    set_scalar64(w, op.dst, Write ? after : before);
    w.scc = after != 0;
}

// Registers numbered at run time: the instruction's number plus M0.
unsigned relative(const Wave& w, const Op& op, u32 code, u32 dwords) {
    constexpr u32 kSgprs = 102;
    const u32 number = code + w.m0();
    if (code >= kSgprs || number > kSgprs - dwords)
        fault(
            w, op,
            "M0 = " + std::to_string(w.m0()) + " moves s" + std::to_string(code) + " beyond the scalar registers");
    if (dwords == 2 && number % 2) fault(w, op, "M0 is odd, which names no pair of scalar registers");
    return number;
}

void s_movrels_b32(Wave& w, const Op& op) { set_scalar32(w, op.dst, w.sgpr[relative(w, op, op.inst.src[0], 1)]); }
void s_movrels_b64(Wave& w, const Op& op) { set_scalar64(w, op.dst, w.pair(relative(w, op, op.inst.src[0], 2))); }
void s_movreld_b32(Wave& w, const Op& op) { w.sgpr[relative(w, op, op.inst.dst, 1)] = scalar32(w, op.src[0]); }
void s_movreld_b64(Wave& w, const Op& op) { w.set_pair(relative(w, op, op.inst.dst, 2), scalar64(w, op.src[0])); }

constexpr const char *k32 = "b32=b32", *k64 = "b64=b64", *k32Of64 = "b32=b64";

constexpr Row kRows[] = {
    {"s_mov_b32", Format::Sop1, 0, k32, nullptr, untested32<kSame>, 0, 0},
    {"s_mov_b64", Format::Sop1, 1, k64, nullptr, untested64<kSame>, 0, 0},
    {"s_cmov_b32", Format::Sop1, 2, "b32=b32,d", nullptr, s_cmov_b32, 0, 0},
    {"s_cmov_b64", Format::Sop1, 3, "b64=b64,d", nullptr, s_cmov_b64, 0, 0},
    {"s_not_b32", Format::Sop1, 4, k32, nullptr, tested32<kNot>, 0, 0},
    {"s_not_b64", Format::Sop1, 5, k64, nullptr, tested64<kNot>, 0, 0},
    {"s_wqm_b32", Format::Sop1, 6, k32, nullptr, tested32<wqm<u32>>, 0, 0},
    {"s_wqm_b64", Format::Sop1, 7, k64, nullptr, tested64<wqm<u64>>, 0, 0},
    {"s_brev_b32", Format::Sop1, 8, k32, nullptr, untested32<brev<u32>>, 0, 0},
    {"s_brev_b64", Format::Sop1, 9, k64, nullptr, untested64<brev<u64>>, 0, 0},
    {"s_bcnt0_i32_b32", Format::Sop1, 10, k32, nullptr,
     tested32<[](u32 a) { return static_cast<u32>(std::popcount(~a)); }>, 0, 0},
    {"s_bcnt0_i32_b64", Format::Sop1, 11, k32Of64, nullptr,
     tested32_of64<[](u64 a) { return static_cast<u32>(std::popcount(~a)); }>, 0, 0},
    {"s_bcnt1_i32_b32", Format::Sop1, 12, k32, nullptr,
     tested32<[](u32 a) { return static_cast<u32>(std::popcount(a)); }>, 0, 0},
    {"s_bcnt1_i32_b64", Format::Sop1, 13, k32Of64, nullptr,
     tested32_of64<[](u64 a) { return static_cast<u32>(std::popcount(a)); }>, 0, 0},
    {"s_ff0_i32_b32", Format::Sop1, 14, k32, nullptr, untested32<[](u32 a) { return first_one(~a); }>, 0, 0},
    {"s_ff0_i32_b64", Format::Sop1, 15, k32Of64, nullptr, untested32_of64<[](u64 a) { return first_one(~a); }>, 0, 0},
    {"s_ff1_i32_b32", Format::Sop1, 16, k32, nullptr, untested32<first_one<u32>>, 0, 0},
    {"s_ff1_i32_b64", Format::Sop1, 17, k32Of64, nullptr, untested32_of64<first_one<u64>>, 0, 0},
    {"s_flbit_i32_b32", Format::Sop1, 18, k32, nullptr, untested32<leading_zeros<u32>>, 0, 0},
    {"s_flbit_i32_b64", Format::Sop1, 19, k32Of64, nullptr, untested32_of64<leading_zeros<u64>>, 0, 0},
    {"s_flbit_i32", Format::Sop1, 20, "i32=i32", nullptr, untested32<leading_signs<u32>>, 0, 0},
    {"s_flbit_i32_i64", Format::Sop1, 21, "i32=i64", nullptr, untested32_of64<leading_signs<u64>>, 0, 0},
    {"s_sext_i32_i8", Format::Sop1, 22, k32, nullptr,
     untested32<[](u32 a) { return static_cast<u32>(static_cast<i8>(a)); }>, 0, 0},
    {"s_sext_i32_i16", Format::Sop1, 23, k32, nullptr,
     untested32<[](u32 a) { return static_cast<u32>(static_cast<i16>(a)); }>, 0, 0},
    {"s_bitset0_b32", Format::Sop1, 24, "b32=u32,d", nullptr, bitset32<false>, 0, 0},
    {"s_bitset0_b64", Format::Sop1, 25, "b64=u32,d", nullptr, bitset64<false>, 0, 0},
    {"s_bitset1_b32", Format::Sop1, 26, "b32=u32,d", nullptr, bitset32<true>, 0, 0},
    {"s_bitset1_b64", Format::Sop1, 27, "b64=u32,d", nullptr, bitset64<true>, 0, 0},
    {"s_and_saveexec_b64", Format::Sop1, 32, k64, nullptr, exec_of<[](u64 s, u64 e) { return s & e; }>, 0, 0},
    {"s_or_saveexec_b64", Format::Sop1, 33, k64, nullptr, exec_of<[](u64 s, u64 e) { return s | e; }>, 0, 0},
    {"s_xor_saveexec_b64", Format::Sop1, 34, k64, nullptr, exec_of<[](u64 s, u64 e) { return s ^ e; }>, 0, 0},
    {"s_andn2_saveexec_b64", Format::Sop1, 35, k64, nullptr, exec_of<[](u64 s, u64 e) { return s & ~e; }>, 0, 0},
    {"s_orn2_saveexec_b64", Format::Sop1, 36, k64, nullptr, exec_of<[](u64 s, u64 e) { return s | ~e; }>, 0, 0},
    {"s_nand_saveexec_b64", Format::Sop1, 37, k64, nullptr, exec_of<[](u64 s, u64 e) { return ~(s & e); }>, 0, 0},
    {"s_nor_saveexec_b64", Format::Sop1, 38, k64, nullptr, exec_of<[](u64 s, u64 e) { return ~(s | e); }>, 0, 0},
    {"s_xnor_saveexec_b64", Format::Sop1, 39, k64, nullptr, exec_of<[](u64 s, u64 e) { return ~(s ^ e); }>, 0, 0},
    {"s_quadmask_b32", Format::Sop1, 40, k32, nullptr, tested32<quadmask<u32>>, 0, 0},
    {"s_quadmask_b64", Format::Sop1, 41, k64, nullptr, tested64<quadmask<u64>>, 0, 0},
    // M0 moves the source, or the destination.
    {"s_movrels_b32", Format::Sop1, 42, "b32=b32", nullptr, s_movrels_b32, 0, 0},
    {"s_movrels_b64", Format::Sop1, 43, "b64=b64", nullptr, s_movrels_b64, 0, 0},
    {"s_movreld_b32", Format::Sop1, 44, "b32=b32", nullptr, s_movreld_b32, 0, 0},
    {"s_movreld_b64", Format::Sop1, 45, "b64=b64", nullptr, s_movreld_b64, 0, 0},
    {"s_abs_i32", Format::Sop1, 48, "i32=i32", nullptr,
     tested32<[](u32 a) { return static_cast<i32>(a) < 0 ? 0 - a : a; }>, 0, 0},
    {"s_andn1_saveexec_b64", Format::Sop1, 51, k64, nullptr, exec_of<[](u64 s, u64 e) { return ~s & e; }>, 0, 0},
    {"s_orn1_saveexec_b64", Format::Sop1, 52, k64, nullptr, exec_of<[](u64 s, u64 e) { return ~s | e; }>, 0, 0},
    {"s_andn1_wrexec_b64", Format::Sop1, 53, k64, nullptr, exec_of<[](u64 s, u64 e) { return ~s & e; }, true>, 0, 0},
    {"s_andn2_wrexec_b64", Format::Sop1, 54, k64, nullptr, exec_of<[](u64 s, u64 e) { return s & ~e; }, true>, 0, 0},
    {"s_bitreplicate_b64_b32", Format::Sop1, 55, "b64=b32", nullptr, untested64_of32<replicated>, 0, 0},
};

}  // namespace

std::span<const Row> salu_bits_rows() { return kRows; }

}  // namespace emu
