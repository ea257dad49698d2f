// SPDX-License-Identifier: MIT
// A kernel's code made ready to run: once per kernel, not at every step.
#pragma once

#include <memory>

#include "wave.h"

namespace emu {

/// A part of .text to translate: bytes from its start.
struct CodeRange {
    u64 begin = 0, end = 0;
};

/// Translates `ranges` of the .text of `bytes` bytes at `text` (its dwords must be readable there) for a kernel whose
/// waves have `vgprs` vector registers, the accumulation registers from `accum_offset` on. Bits that are no known
/// instruction become operations that fault when they are reached, never an error here.
std::unique_ptr<Program> translate(
    const void* text, u64 bytes, const std::vector<CodeRange>& ranges, u32 vgprs, u32 accum_offset);

/// Index of the operation at an address, or kNoOp.
u32 index_of(const Program&, u64 address);

}  // namespace emu
