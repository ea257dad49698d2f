// SPDX-License-Identifier: MIT
// ISA guide, "DPP": rows of 16 lanes, banks of 4.
#include "valu.h"

namespace emu {
namespace {

constexpr int kRow = 16, kNone = -1;

enum Control : unsigned {
    kQuadPermLast = 0xff,
    kRowShl = 0x100,
    kRowShr = 0x110,
    kRowRor = 0x120,
    kWaveShl = 0x130,
    kWaveRol = 0x134,
    kWaveShr = 0x138,
    kWaveRor = 0x13c,
    kRowMirror = 0x140,
    kRowHalfMirror = 0x141,
    kRowBcast15 = 0x142,
    kRowBcast31 = 0x143,
    kRowNewBcast = 0x150,
};

int within_row(int lane, int other) { return other >= 0 && other < kRow ? lane / kRow * kRow + other : kNone; }

// The lane that `lane` reads, or kNone.
int source_lane(unsigned control, int lane) {
    const int column = lane % kRow;
    if (control <= kQuadPermLast) return (lane & ~3) | static_cast<int>(control >> 2 * (lane & 3) & 3);
    const int amount = static_cast<int>(control & 15);
    switch (control & ~15u) {
        case kRowShl: return within_row(lane, column + amount);
        case kRowShr: return within_row(lane, column - amount);
        case kRowRor: return within_row(lane, (column - amount) & (kRow - 1));
        case kRowNewBcast: return within_row(lane, amount);
        default: break;
    }
    switch (control) {
        case kWaveShl: return lane + 1 < kLanes ? lane + 1 : kNone;
        case kWaveRol: return (lane + 1) % kLanes;
        case kWaveShr: return lane - 1;
        case kWaveRor: return (lane + kLanes - 1) % kLanes;
        case kRowMirror: return within_row(lane, kRow - 1 - column);
        case kRowHalfMirror: return lane ^ 7;
        case kRowBcast15: return lane < kRow ? kNone : (lane / kRow) * kRow - 1;
        case kRowBcast31: return lane < 2 * kRow ? kNone : 2 * kRow - 1;
        default: return kNone;
    }
}

}  // namespace

u64 permute_dpp(const Inst& inst, u32* words, int registers, u64 exec) {
    u32 moved[4 * kLanes];
    u64 written = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const bool enabled = (inst.row_mask >> (lane / kRow) & 1) && (inst.bank_mask >> (lane % kRow / 4) & 1);
        const int from = source_lane(inst.dpp_ctrl, lane);
        const bool valid = from != kNone && (exec >> from & 1);
        if (enabled && (valid || inst.bound_ctrl)) written |= u64{1} << lane;
        for (int i = 0; i < registers; ++i) moved[i * kLanes + lane] = valid ? words[i * kLanes + from] : 0;
    }
    std::memcpy(words, moved, sizeof(u32) * kLanes * registers);
    return written;
}

}  // namespace emu
