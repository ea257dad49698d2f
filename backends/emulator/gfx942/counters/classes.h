// SPDX-License-Identifier: MIT
// What kind of instruction an operation is, which unit of the compute unit it takes and for how long.
#pragma once

#include "../instruction.h"

namespace emu::counters {

enum class Class : u8 {
    Salu,
    Smem,
    Valu,
    Transcendental,
    Packed,
    Wide /* 64-bit */,
    Matrix,
    Lds,
    Load,
    Store,
    Atomic,
    Branch,
    Barrier,
    Waitcnt,
    Nop,
    Priority,
    Other,
};
constexpr int kClasses = 17;
const char* name(Class);

/// What a wave's instruction occupies. Branches and the like take their scheduler's turn and nothing else.
enum class Unit : u8 { Salu, Valu, Matrix, Lds, Vmem, Smem, None };

struct Kind {
    Class klass = Class::Other;
    Unit unit = Unit::None;
    u32 cycles = 0;  // that the unit is taken for one wave: VALU, SALU, matrix; those of memory are counted
    u64 flops = 0;   // matrix: 2 m n k blocks; sparse: of the elements that are stored
    bool sparse = false;
};

Kind classify(const Op&);

/// "fp8", "bf16", "f16", "i8", "xf32", "f32", "f64": the type of a matrix instruction's inputs, from its name.
const char* matrix_type(const Row&);

}  // namespace emu::counters
