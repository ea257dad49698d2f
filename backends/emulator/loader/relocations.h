// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "code_object.h"
#include "elf.h"

namespace emu::loader {

// The dynamic relocations of a linked code object, each checked to lie within the image. Throws LoadError.
std::vector<Relocation> read_relocations(const Elf& elf, uint64_t image_size);

}  // namespace emu::loader
