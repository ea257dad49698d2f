// SPDX-License-Identifier: MIT
// How definedness flows through each operation, made once per program: the rule, and the registers that the quick way looks at.
// Nearly all values are defined. If all that an operation reads is, so are its results, whatever the rule says otherwise.
#pragma once

#include <array>
#include <cstring>

#include "../wave.h"

namespace emu::checks::definedness {

inline bool begins(const char* name, const char* prefix) { return !std::strncmp(name, prefix, std::strlen(prefix)); }

/// Of an instruction's name.
template <class... Prefixes>
bool begins_any(const char* name, Prefixes... prefixes) {
    return (begins(name, prefixes) || ...);
}

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

/// Consecutive registers of one file.
struct Run {
    u16 first = 0;
    u8 count = 0;
    unsigned end() const { return unsigned{first} + count; }
};

template <size_t kMost>
struct Runs {
    std::array<Run, kMost> runs = {};
    u8 size = 0;

    void add(unsigned first, unsigned count) {
        if (count) runs[size++] = {static_cast<u16>(first), static_cast<u8>(count)};
    }
    const Run* begin() const { return runs.data(); }
    const Run* end() const { return runs.data() + size; }
};

struct Flow {
    Rule rule = kNothing;
    bool quick = false;      // there is a quick way; for memory operations it is that of the address
    bool all_lanes = false;  // lanes that EXEC excludes are read and written, too
    bool reads_scc = false, writes_scc = false;
    Runs<4> vectors, results;         // vector registers read and written
    Runs<7> scalars, scalar_results;  // scalar ones
};

/// `registers`: how many vector registers a wave has.
Flow flow_of(const Op&, unsigned registers);

}  // namespace emu::checks::definedness
