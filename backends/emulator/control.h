// SPDX-License-Identifier: MIT
// How the emulator is to run and what it found, for whoever drives it. The C functions at the end are the library's own
// interface beside HIP's: JSON text goes in and out, so that a caller needs no header of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gfx942/checks/checks.h"

namespace emu {

struct Options {
    uint32_t checks = 0;            // checks::Check
    unsigned threads = 0;           // CPU threads; 0: one a core
    bool counters = false;
    uint64_t sample = 0;            // with counters: only so many workgroups run (results are incomplete); 0: all
    bool strict = false;            // memory that nobody registered is out of bounds
    bool unordered = false;         // let kernels with order-dependent atomics run on several threads
    bool halt = false;              // the first finding stops the kernel
    uint64_t slice = 4'000'000;
    uint64_t limit = 0;
};

namespace control {

const Options& options();
/// "checks=all,threads=2"; throws std::invalid_argument with the names there are.
void set(const std::string& option, const std::string& value);
void keep_findings(std::vector<checks::Finding>);
void keep_counters(std::string json);

}  // namespace control
}  // namespace emu
