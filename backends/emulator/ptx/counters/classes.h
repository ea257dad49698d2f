// SPDX-License-Identifier: MIT
// What kind of instruction a statement of PTX is, and what a product of matrices is worth.
#pragma once

#include "../source.h"

namespace emu::ptx {

enum class Class : u8 {
    Integer,
    Bits,
    Float,
    Double,
    Half,
    Special /* functions: ex2, rcp, sin, … and divisions */,
    Convert,
    Compare,
    Move,
    Tensor,
    SharedLoad /* ldmatrix too */,
    SharedStore,
    Load /* of global, constant, local or generic memory */,
    Store,
    Atomic,
    AsyncCopy /* cp.async */,
    BulkCopy /* cp.async.bulk: the TMA's */,
    Mbarrier,
    Barrier,
    Fence,
    Wait /* for copies and products */,
    Lanes /* shfl, vote, redux, … */,
    Branch,
    Other,
};
constexpr int kClasses = static_cast<int>(Class::Other) + 1;
const char* name(Class);

struct Classified {
    Class klass = Class::Other;
    u64 flops = 0;          // tensor: 2 m n k of what one warp computes
    u64 operand_bytes = 0;  // wgmma: of shared memory that it reads, a warp's share
};

Classified classify(const Statement&);

/// "wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3"
std::string opcode(const Statement&);

}  // namespace emu::ptx
