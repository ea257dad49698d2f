// SPDX-License-Identifier: MIT
#pragma once

#include "../builder.h"

namespace emu::ptx {

/// A call of a function that CUDA brings along, not the PTX. False: it is none.
bool decode_library_call(Builder&);

}  // namespace emu::ptx
