// SPDX-License-Identifier: MIT
// What an operation is to the rules about wait states.
#pragma once

#include "../instruction.h"

namespace emu::checks {

enum HazardClass : u32 {
    kVector = 1u << 0,  // VALU, matrix instructions included
    kTrans = 1u << 1,
    kMatrix = 1u << 2,  // MFMA and SMFMAC
    kXdl = 1u << 3,     // of these: all but the f32 and f64 ones
    kDgemm = 1u << 4,   // f64
    kDot = 1u << 5,
    kSparse = 1u << 6,
    kVmem = 1u << 7,  // MUBUF, MTBUF, FLAT, GLOBAL, SCRATCH
    kLds = 1u << 8,
    kScalarAlu = 1u << 9,
    kDpp = 1u << 10,
    kReadLane = 1u << 11,  // v_readlane, v_readfirstlane
    kWriteLane = 1u << 12,
    kSelectsLane = 1u << 13,  // by source 1: v_readlane, v_writelane
    kMovesResult = 1u << 14,  // SDWA or op_sel put the result elsewhere than in the low bits
    kWideStore = 1u << 15,    // keeps reading more than 64 bits of data after it was issued
    kDivFmas = 1u << 16,
    kFma64 = 1u << 17,
    kSetRegister = 1u << 18,
    kGetRegister = 1u << 19,
    kUsesM0 = 1u << 20,  // where the hardware does not look for a pending write: LDS add-TID, LDS DMA, messages
    kSetsExec = 1u << 21,
    kReadsZeroFlag = 1u << 22,  // VCCZ or EXECZ as a source
};

}  // namespace emu::checks
