// SPDX-License-Identifier: MIT
// A loaded code object: its image where it was placed, its kernels, translated when they are first launched.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../loader/code_object.h"
#include "wave.h"

namespace emu {

struct Kernel {
    Module* module = nullptr;
    const loader::KernelInfo* info = nullptr;
    std::once_flag once;
    std::unique_ptr<Program> program;
    u32 start = kNoOp;
    bool ordered = false;  // has atomics whose order shows in the result
    bool waits = false;    // may wait for other workgroups: how many instructions it runs depends on their order
};

struct Module {
    loader::CodeObject code;
    std::vector<u8> file;  // what it was loaded from
    u8* base = nullptr;    // where address 0 of the image is
    size_t size = 0;
    std::vector<std::unique_ptr<Kernel>> kernels;

    Module() = default;
    Module(const Module&) = delete;
    ~Module();
};

/// Translates the kernel if this is its first launch.
void prepare(Kernel&);

}  // namespace emu
