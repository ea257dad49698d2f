// SPDX-License-Identifier: MIT
// Finds the device code in what a host program registers or loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "bytes.h"

namespace emu::loader {

// Whether code compiled for `code` ("gfx942", "gfx942:sramecc+", "gfx9-4-generic") runs on `device`
// ("gfx942:sramecc+:xnack-"): same processor or a generic one that covers it, and no feature set the other way.
bool runs_on(std::string_view code, std::string_view device);

// The code object for `target` in `fat`: an ELF file, a clang offload bundle, or the wrapper that clang's host code
// registers. `limit` bounds the bytes that may be read where they are known; host programs pass bare pointers.
// Throws LoadError where there is none. What was compressed stays until the thread looks for another one.
std::pair<const uint8_t*, size_t> find_code_object(const void* fat, std::string_view target, size_t limit = SIZE_MAX);

}  // namespace emu::loader
