// SPDX-License-Identifier: MIT
#include "hardware_registers.h"

namespace emu {
namespace {

enum RegisterId : unsigned {
    kMode = 1,
    kStatus = 2,
    kTrapStatus = 3,
    kHardwareId = 4,
    kLdsAlloc = 6,
    kInstructionBuffer = 7,
    kMemoryBases = 15,
    kTrapBaseLow = 16,
    kTrapMemoryHigh = 19,
    kXccId = 20,
};

// Where a workgroup runs. An MI300X has 8 dies (XCC), which get workgroups in turn, with 38 compute units each in 4 shader
// engines. This is a placement that could be, always the same, not one that the hardware would have to choose.
constexpr u32 kDies = 8, kUnitsOfDie = 38, kEngines = 4, kSimds = 4;

u32 hardware_id(const Wave& w) {
    const u32 unit = static_cast<u32>(w.group->linear / kDies % kUnitsOfDie);
    const u32 wave = w.id / kSimds & 15, simd = w.id % kSimds, group = static_cast<u32>(w.group->linear) & 15;
    return wave | simd << 4 | unit / kEngines << 8 | unit % kEngines << 13 | group << 16;
}

u32 status(const Wave& w) {
    constexpr u32 kExeczBit = 1u << 9, kVcczBit = 1u << 10, kInGroup = 1u << 11, kValid = 1u << 16;
    u32 value = w.status | kValid | static_cast<u32>(w.scc);
    if (!w.exec()) value |= kExeczBit;
    if (!w.vcc()) value |= kVcczBit;
    if (w.group->waves.size() > 1) value |= kInGroup;
    return value;
}

}  // namespace

u32 read_hardware_register(const Wave& w, const Op& op, unsigned id) {
    constexpr u32 kLdsUnit = 256;
    switch (id) {
        case kMode: return w.mode;
        case kStatus: return status(w);
        case kTrapStatus: fault(w, op, "reads TRAPSTS: which floating-point exceptions have occurred is not kept here");
        case kHardwareId: return hardware_id(w);
        case kLdsAlloc: return (w.group->lds_bytes + kLdsUnit - 1) / kLdsUnit << 12;
        case kInstructionBuffer:
            return 0;  // nothing is ever outstanding
        // Bits 63:48 of the two apertures.
        case kMemoryBases: return static_cast<u32>(kPrivateAperture >> 48 | kSharedAperture >> 48 << 16);
        case kXccId: return static_cast<u32>(w.group->linear % kDies);
        default: break;
    }
    if (id >= kTrapBaseLow && id <= kTrapMemoryHigh) return 0;  // no trap handler
    fault(w, op, "reads hardware register " + std::to_string(id) + ", which the emulator does not have");
}

void write_hardware_register(Wave& w, const Op& op, unsigned id, u32 mask, u32 value) {
    if (id == kTrapStatus) return;  // only clears what is not kept
    if (id != kMode)
        fault(w, op, "writes hardware register " + std::to_string(id) + "; kernels may write MODE and TRAPSTS");
    const u32 mode = (w.mode & ~mask) | (value & mask);
    if (mode & kTrapEnables) fault(w, op, "lets floating-point exceptions trap, which they cannot do here");
    if (mode & kVectorSkip) fault(w, op, "sets VSKIP, which the emulator does not have");
    w.mode = mode;
}

}  // namespace emu
