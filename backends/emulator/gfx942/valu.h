// SPDX-License-Identifier: MIT
// DPP: a source whose lanes are exchanged on the way.
#pragma once

#include "wave.h"

namespace emu {

/// Replaces `words` (registers of 64 words) by what each lane gets under the instruction's DPP control and returns the
/// lanes that are written: those whose row and bank are enabled and whose source lane exists and is active, or that
/// bound_ctrl gives a zero.
u64 permute_dpp(const Inst&, u32* words, int registers, u64 exec);

}  // namespace emu
