// SPDX-License-Identifier: MIT
// Runs the workgroups of a launch on the CPU's threads.
#pragma once

#include <string>

#include "counters/counters.h"
#include "translate.h"
#include "wave.h"

namespace emu {

struct Outcome {
    bool ok = true;
    int hip_error = 0;
    std::string message;  // with the place where it happened
};

struct RunOptions {
    unsigned threads = 1;
    u64 slice = 4'000'000;  // instructions of a wave before another workgroup gets a turn
    u64 limit = 0;          // instructions of one wave before it counts as hanging; 0: none
};

/// All workgroups of `launch`; `total` receives what was counted (may be null).
Outcome run(const Launch& launch, const RunOptions& options, counters::Tally* total);

/// Runs `count` operations of a program on one wave, for tests; stops at its end or at s_endpgm.
Outcome run_straight(Wave& wave, const Program& program);

/// "kernel f, workgroup (1, 0, 0), wave 2, pc 0x40, f.hip:12: v_add_f32 v1, v2, v3".
std::string place(const Wave&, const Op&);

}  // namespace emu
