// SPDX-License-Identifier: MIT
// Compressed offload bundles (clang's --offload-compress).
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"

namespace emu::loader {

inline constexpr std::string_view kCompressed = "CCOB";

// What `bundle`, which begins with kCompressed, holds. Decompressed by the system's libzstd or libz, which are loaded for it.
// Throws LoadError.
std::vector<uint8_t> decompress(const Bytes& bundle);

}  // namespace emu::loader
