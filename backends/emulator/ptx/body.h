// SPDX-License-Identifier: MIT
// The statements of a function.
#pragma once

#include "scanner.h"

namespace emu::ptx {

/// What a device function gets and gives back.
struct Formal {
    std::vector<Variable> results, parameters;
};

/// Behind the opening brace, up to the closing one. Throws SourceError.
void parse_body(Function&, const Formal&, Scanner&);

}  // namespace emu::ptx
