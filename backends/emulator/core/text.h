// SPDX-License-Identifier: MIT
#pragma once

#include <cinttypes>
#include <cstdio>
#include <string>

#include "scalars.h"

namespace emu {

/// "0x7f"
inline std::string hex(u64 value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%" PRIx64, value);
    return text;
}

}  // namespace emu
