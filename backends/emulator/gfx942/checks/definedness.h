// SPDX-License-Identifier: MIT
// How definedness goes from the sources of an instruction to its results (uninitialised.h says what it is good for): of vector
// registers lane by lane, of scalar registers bit by bit. A lane is true for what was written, false for what was not, and the
// conjunction of its sources for what was computed; half of a register counts for all of it.
#pragma once

#include "flow.h"
#include "uninitialised.h"

namespace emu::checks::definedness {

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

// --- the quick way ----------------------------------------------------------------------------------------------------

/// Whether all that the operation reads in `lanes` is defined.
inline bool all_defined(const UninitialisedWave& state, const Flow& flow, u64 lanes) {
    u64 undefined = 0;
    u32 bits = ~u32{0};
    for (const Run& run : flow.vectors)
        for (unsigned i = run.first; i < run.end(); ++i) undefined |= ~state.vgpr[i];
    for (const Run& run : flow.scalars)
        for (unsigned i = run.first; i < run.end(); ++i) bits &= state.sgpr[i];
    return !(undefined & lanes) && bits == ~u32{0} && (!flow.reads_scc || state.scc);
}

/// Its results become defined, vector registers in `lanes`.
inline void define_results(UninitialisedWave& state, const Flow& flow, u64 lanes) {
    for (const Run& run : flow.results)
        for (unsigned i = run.first; i < run.end(); ++i) state.vgpr[i] |= lanes;
    for (const Run& run : flow.scalar_results) {
        for (unsigned i = run.first; i < run.end(); ++i) {
            state.sgpr[i] = ~u32{0};
            state.sgpr_origin[i] = 0;
        }
    }
    if (flow.writes_scc) state.scc = true;
}

}  // namespace emu::checks::definedness
