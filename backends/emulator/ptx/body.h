// SPDX-License-Identifier: MIT
// The statements of a function.
#pragma once

#include "scanner.h"

namespace emu::ptx {

/// Behind the opening brace, up to the closing one. Throws SourceError.
void parse_body(Function&, Scanner&);

}  // namespace emu::ptx
