// SPDX-License-Identifier: MIT
// Vector instructions in which lanes see each other: single lanes to and from scalar registers, and counts of lanes below.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapters "VOP1", "VOP3A".
#include "../table.h"
#include "../wave.h"
#include "hardware_registers.h"

namespace emu {
namespace {

// The vector register itself or, in the mode that indexes them, M0[7:0] further if M0's bit for the operand says so: these
// instructions have source 0 and the destination in their usual places (ISA guide, "VGPR Indexing", special cases).
enum IndexBit : unsigned { kSource0 = 12, kDestination = 15 };

u32* place(const Wave& w, const Op& op, const Operand& operand, IndexBit bit) {
    u32 index = operand.index;
    if (w.mode & kGprIndexMode && w.m0() >> bit & 1) {
        index += w.m0() & 0xff;
        if (index >= w.vgpr_count) fault(w, op, "VGPR index beyond the wave's registers");
    }
    return w.v(index);
}

u32 word_of(const Wave& w, const Op& op, unsigned lane) {
    const Operand& operand = op.src[0];
    return operand.kind == Operand::Vector ? place(w, op, operand, kSource0)[lane] : scalar32(w, operand);
}

// With no lane active, lane 0.
void v_readfirstlane_b32(Wave& w, const Op& op) {
    const u64 exec = w.exec();
    set_scalar32(w, op.dst, word_of(w, op, exec ? static_cast<unsigned>(std::countr_zero(exec)) : 0));
}

// Both of these reach lanes that EXEC excludes.
void v_readlane_b32(Wave& w, const Op& op) {
    set_scalar32(w, op.dst, word_of(w, op, scalar32(w, op.src[1]) & (kLanes - 1)));
}

void v_writelane_b32(Wave& w, const Op& op) {
    place(w, op, op.dst, kDestination)[scalar32(w, op.src[1]) & (kLanes - 1)] = scalar32(w, op.src[0]);
}

// How many of the first operand's bits stand for lanes below one's own, plus the second.
template <int FirstLane>
void v_mbcnt(Lanes& l) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const int below = lane - FirstLane;
        const u32 mask = below <= 0 ? 0 : below >= 32 ? ~u32{0} : (1u << below) - 1;
        l.d[lane] = static_cast<u32>(std::popcount(l.s[0][lane] & mask)) + l.s[1][lane];
    }
}

constexpr Row kRows[] = {
    {"v_readfirstlane_b32", Format::Vop1, 2, "b32=b32", nullptr, v_readfirstlane_b32, 0, 0},
    {"v_readlane_b32", Format::Vop3, 649, "b32=b32,u32", nullptr, v_readlane_b32, 0, 0},
    {"v_writelane_b32", Format::Vop3, 650, "b32=b32,u32", nullptr, v_writelane_b32, 0, 0},
    {"v_mbcnt_lo_u32_b32", Format::Vop3, 652, "u32=b32,u32", v_mbcnt<0>, nullptr, 0, 0},
    {"v_mbcnt_hi_u32_b32", Format::Vop3, 653, "u32=b32,u32", v_mbcnt<32>, nullptr, 0, 0},
};

}  // namespace

std::span<const Row> vop_cross_lane_rows() { return kRows; }

}  // namespace emu
