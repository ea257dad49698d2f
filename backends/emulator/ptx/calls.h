// SPDX-License-Identifier: MIT
// Where lanes of a warp are within functions of the device. Each has a stack of its own, in its local memory.
//
// Source: PTX ISA 9.0, section 7 (abstracting the ABI).
#pragma once

#include <memory>

#include "program.h"

namespace emu::ptx {

struct Split;

struct Calls {
    struct Frame {
        const Call* call;
        u32 base, top;  // of the callee's variables, in local memory
        // Registers of the caller, of all lanes; null: nobody can have changed them.
        std::shared_ptr<const std::vector<char>> kept;
    };
    std::vector<Frame> frames[kLanes];
    std::vector<u8> memory[kLanes];  // behind the kernel's own variables

    /// Where the variables of the function that a lane is in begin.
    u32 base(int lane) const { return frames[lane].empty() ? 0 : frames[lane].back().base; }
    /// Bytes of the variables of one call that has not come back; null: they are not. `own`: bytes of the kernel's variables.
    u8* find(int lane, u64 offset, u32 bytes, u32 own);
    /// Whether split `a` is further behind than `b`: what lanes have before them after a call is what their callers have.
    bool before(const Split& a, const Split& b) const;
    /// The place in its function that a split reaches only once another one has come there.
    u32 limit(const Split& running, const Split& other) const;

private:
    u32 at(int lane, size_t depth, u32 pc) const;
};

}  // namespace emu::ptx
