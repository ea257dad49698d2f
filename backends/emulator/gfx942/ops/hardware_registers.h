// SPDX-License-Identifier: MIT
// What s_getreg_b32 and s_setreg_b32 see. Numbers and fields: "AMD Instinct MI300 Instruction Set Architecture Reference
// Guide", chapter "Hardware registers"; names as LLVM's hwreg().
#pragma once

#include "../wave.h"

namespace emu {

/// MODE's bits beyond those that Wave's own functions name.
enum ModeBits : u32 {
    kGprIndexMode = 1u << 27,
    kVectorSkip = 1u << 28,
    kTrapEnables = 0x1ffu << 12,
    kForkDepthShift = 29,  // the three topmost bits: nested forks
};

/// Stop the kernel where a register is not modelled.
u32 read_hardware_register(const Wave&, const Op&, unsigned id);
void write_hardware_register(Wave&, const Op&, unsigned id, u32 mask, u32 value);

}  // namespace emu
