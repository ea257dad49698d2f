// SPDX-License-Identifier: MIT
// A kernel and the device functions that it may call, as one list of statements.
#pragma once

#include <memory>

#include "liveness.h"
#include "program.h"

namespace emu::ptx {

struct Linked {
    /// The kernel; behind its statements, registers and variables those of the others.
    std::unique_ptr<Function> function;
    Slots slots;
    std::vector<Routine> routines;  // the kernel is the first one
};

/// A function that is only reached through a pointer may be refused: a call of it is a fault then. Throws SourceError.
Linked link(const Module&, std::string_view kernel);

}  // namespace emu::ptx
