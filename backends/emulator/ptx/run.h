// SPDX-License-Identifier: MIT
// Runs the blocks of a launch on the CPU's threads.
#pragma once

#include <string>

#include "warp.h"

namespace emu::ptx {

struct Outcome {
    bool ok = true;
    int cuda_error = 0;
    std::string check;    // which one found it: "bounds", "misaligned", "barrier", …
    std::string message;  // what happened
    std::string place;    // where: kernel, source line, instruction
    u32 block[3] = {0, 0, 0};
    u32 warp = 0;
    std::string file;
    u32 line = 0;
    u64 executed = 0;  // instructions of warps
    std::vector<Found> found;
    Written written;
    Tally tally;  // if the launch wants counters
};

/// All blocks, `threads` at a time.
Outcome run(const Launch& launch, unsigned threads);

}  // namespace emu::ptx
