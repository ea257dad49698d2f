// SPDX-License-Identifier: MIT
// How the emulated MI300X is to run.
#pragma once

#include <cstdint>
#include <string>

#include "core/control.h"

namespace emu {

struct Options {
    uint32_t checks = 0;   // checks::Check
    bool report = false;   // findings go to stderr, and make the process fail; see findings.h
    std::string log;       // a file that gets them, too; "": none
    unsigned threads = 0;  // CPU threads; 0: one a core
    unsigned devices = 1;
    bool tensors = false;  // torch's CPU tensors are device memory, see tensors.cpp; set before torch is loaded
    bool counters = false;
    uint64_t record =
        0;  // 1: launches, fills and copies are written down (recorded.h); 2: launches are not run besides
    bool services = true;    // kernels may ask the host for printf, malloc and calls
    uint64_t sample = 0;     // with counters: only so many workgroups run (results are incomplete); 0: all
    bool keep = false;       // with counters: launches can be modelled again with other numbers
    bool strict = false;     // memory that nobody registered is out of bounds
    bool unordered = false;  // let kernels with order-dependent atomics run on several threads
    bool halt = false;       // the first finding stops the kernel
    uint64_t slice = 4'000'000;
    uint64_t limit = 0;
};

namespace control {

const Options& options();
/// Of launches, fills and copies.
Kept& kept_counters();

}  // namespace control
}  // namespace emu
