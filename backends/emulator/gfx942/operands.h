// SPDX-License-Identifier: MIT
// What an operand code means for a type.
#pragma once

#include <optional>

#include "instruction.h"

namespace emu {

constexpr u16 kFirstInlineInteger = 128, kLastInlineInteger = 208, kFirstInlineFloat = 240, kLastInlineFloat = 248;

/// The value of an inline constant or literal (`code` 255) as `type` reads it; nothing for other codes. 64 bits for
/// 64-bit types and both halves for pairs of 32 bits, else 32.
std::optional<u64> constant_value(u16 code, Type type, u32 literal);

}  // namespace emu
