// SPDX-License-Identifier: MIT
// How definedness goes from the sources of an instruction to its results (uninitialised.h says what it is good for): of vector
// registers lane by lane, of scalar registers bit by bit. A lane is true for what was written, false for what was not, and the
// conjunction of its sources for what was computed; half of a register counts for all of it.
#pragma once

#include "uninitialised.h"

namespace emu::checks::definedness {

// How a result depends on its sources.
enum Rule : u8 {
    kNothing,
    kDefinedScalar,
    kScalar,
    kScalarQuiet /* leaves SCC alone */,
    kBits,
    kSelect,
    kMoveIf,
    kBranch,
    kVector,
    kFresh /* defined whatever the sources are */,
    kChoose,
    kInsert,
    kEither /* parts of several registers */,
    kPairs,
    kWide,
    kShiftLeft,
    kShiftRight,
    kReadLane,
    kWriteLane,
    kMatrix,
    kMemory,
    kScalarMemory,
    kPermute,
};

Rule rule_of(const Op&);

struct Defined {
    u64 lanes = kAllLanes;
    u32 origin = 0;

    void meet(u64 other, u32 from) {
        if (~other & lanes && !origin) origin = from;
        lanes &= other;
    }
};

/// Lanes in which the operand (of it `count` registers from `first` on) is defined join `result`.
void meet(Defined& result, const UninitialisedWave&, const Operand&, unsigned first = 0, unsigned count = 16);

/// `dwords` scalar registers from `code` on.
void define_bits(UninitialisedWave&, unsigned code, unsigned dwords, u64 bits, u32 origin);

/// Scalar instructions may overwrite what they read: what comes out is found before they run, and kept after.
void scalar_before(Wave&, const Op&, Rule);
void scalar_after(UninitialisedWave&, const Op&);

/// All others that have a vector result or read lanes, after they ran.
void vector_after(Wave&, const Op&, Rule);

}  // namespace emu::checks::definedness
