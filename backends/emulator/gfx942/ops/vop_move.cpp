// SPDX-License-Identifier: MIT
// Vector instructions that move or rearrange bits: moves, selects, bit fields, byte permutations.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapters "VOP1", "VOP2", "VOP3A", "VOP3P".
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

u32v source(const Lanes& l, int i) { return load<u32v>(l.s[i]); }

void move32(Lanes& l) { store(l.d, source(l, 0)); }

void move64(Lanes& l) {
    const u32v low = load<u32v>(l.s[0]), high = load<u32v>(l.s[0] + kLanes);
    store(l.d, low);
    store(l.d + kLanes, high);
}

void v_not_b32(Lanes& l) { store(l.d, ~source(l, 0)); }

void v_bfrev_b32(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) l.d[lane] = __builtin_bitreverse32(l.s[0][lane]);
}

void v_cndmask_b32(Lanes& l) {
    const u32v chosen = __builtin_convertvector(to_lanes(l.mask_in), u32v);
    store(l.d, (source(l, 0) & ~chosen) | (source(l, 1) & chosen));
}

void v_bfi_b32(Lanes& l) {
    const u32v mask = source(l, 0);
    store(l.d, (mask & source(l, 1)) | (~mask & source(l, 2)));
}

void v_bfe_u32(Lanes& l) {
    const u32v field = (u32v(1) << (source(l, 2) & 31)) - 1;
    store(l.d, source(l, 0) >> (source(l, 1) & 31) & field);
}

// Bits that the field would take from beyond the sign are the sign's.
void v_bfe_i32(Lanes& l) {
    const u32v width = source(l, 2) & 31;
    const i32v shifted = load<i32v>(l.s[0]) >> __builtin_convertvector(source(l, 1) & 31, i32v);
    const u32v up = (32 - width) & 31;  // a width of 0 is dealt with below
    const i32v field = (shifted << __builtin_convertvector(up, i32v)) >> __builtin_convertvector(up, i32v);
    store(l.d, field & (width != 0));
}

void v_bfm_b32(Lanes& l) { store(l.d, ((u32v(1) << (source(l, 0) & 31)) - 1) << (source(l, 1) & 31)); }

// {first, second} as 64 bits, moved right by fewer than 32.
u32v aligned(u32v high, u32v low, u32v shift) { return low >> shift | (high << 1) << (31 - shift); }

void v_alignbit_b32(Lanes& l) { store(l.d, aligned(source(l, 0), source(l, 1), source(l, 2) & 31)); }
void v_alignbyte_b32(Lanes& l) { store(l.d, aligned(source(l, 0), source(l, 1), (source(l, 2) & 3) * 8)); }

// One byte of v_perm_b32: 0-7 take that byte of {first, second}; 8-11 repeat the sign of bytes 1, 3, 5 and 7; 12 is 0 and
// everything above 0xff.
u32 permuted_byte(u64 data, u32 select) {
    if (select < 8) return static_cast<u32>(data >> (8 * select)) & 0xff;
    if (select < 12) return data >> (16 * (select - 8) + 15) & 1 ? 0xff : 0;
    return select == 12 ? 0 : 0xff;
}

void v_perm_b32(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 data = u64{l.s[0][lane]} << 32 | l.s[1][lane];
        const u32 select = l.s[2][lane];
        l.d[lane] = permuted_byte(data, select & 0xff) | permuted_byte(data, select >> 8 & 0xff) << 8 |
                    permuted_byte(data, select >> 16 & 0xff) << 16 | permuted_byte(data, select >> 24) << 24;
    }
}

u32 saturated_byte(u32 half) {
    const i32 value = static_cast<i16>(half);
    return value < 0 ? 0 : value > 255 ? 255 : static_cast<u32>(value);
}

void v_sat_pk_u8_i16(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 both = l.s[0][lane];
        l.d[lane] = saturated_byte(both) | saturated_byte(both >> 16) << 8;
    }
}

// Two destinations, so not a lane function.
void v_swap_b32(Wave& w, const Op& op) {
    u32 *const first = w.v(op.dst.index), *const second = w.v(op.src[0].index);
    const u32v chosen = load<u32v>(w.mask()), a = load<u32v>(first), b = load<u32v>(second);
    store(first, (b & chosen) | (a & ~chosen));
    store(second, (a & chosen) | (b & ~chosen));
}

void v_nop(Wave&, const Op&) {}

// Exceptions that have occurred are not kept.
void v_clrexcp(Wave&, const Op&) {}

constexpr const char *kOne = "b32=b32", *kThree = "u32=u32,u32,u32";

constexpr Row kRows[] = {
    {"v_nop", Format::Vop1, 0, "", nullptr, v_nop, 0, 0},
    {"v_mov_b32", Format::Vop1, 1, kOne, move32, nullptr, 0, 0},
    {"v_not_b32", Format::Vop1, 43, kOne, v_not_b32, nullptr, 0, 0},
    {"v_bfrev_b32", Format::Vop1, 44, kOne, v_bfrev_b32, nullptr, 0, 0},
    {"v_clrexcp", Format::Vop1, 53, "", nullptr, v_clrexcp, 0, 0},
    {"v_mov_b64", Format::Vop1, 56, "b64=b64", move64, nullptr, kDoubleRate, 0},
    {"v_sat_pk_u8_i16", Format::Vop1, 79, "b16=b32", v_sat_pk_u8_i16, nullptr, 0, 0},
    {"v_swap_b32", Format::Vop1, 81, kOne, nullptr, v_swap_b32, 0, 0},
    {"v_accvgpr_mov_b32", Format::Vop1, 82, kOne, move32, nullptr, 0, 0},
    {"v_cndmask_b32", Format::Vop2, 0, "b32=b32,b32,m", v_cndmask_b32, nullptr, 0, 0},
    {"v_bfe_u32", Format::Vop3, 456, kThree, v_bfe_u32, nullptr, 0, 0},
    {"v_bfe_i32", Format::Vop3, 457, "i32=i32,u32,u32", v_bfe_i32, nullptr, 0, 0},
    {"v_bfi_b32", Format::Vop3, 458, "b32=b32,b32,b32", v_bfi_b32, nullptr, 0, 0},
    {"v_alignbit_b32", Format::Vop3, 462, kThree, v_alignbit_b32, nullptr, 0, 0},
    {"v_alignbyte_b32", Format::Vop3, 463, kThree, v_alignbyte_b32, nullptr, 0, 0},
    {"v_perm_b32", Format::Vop3, 493, kThree, v_perm_b32, nullptr, 0, 0},
    {"v_bfm_b32", Format::Vop3, 659, "u32=u32,u32", v_bfm_b32, nullptr, 0, 0},
    {"v_accvgpr_read_b32", Format::Mai, 88, kOne, move32, nullptr, 0, 0},
    {"v_accvgpr_write_b32", Format::Mai, 89, kOne, move32, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_move_rows() { return kRows; }

}  // namespace emu
