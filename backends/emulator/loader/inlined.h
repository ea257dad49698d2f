// SPDX-License-Identifier: MIT
// Which calls the compiler put inline around an instruction: DWARF 4 and 5 (.debug_info), as far as line tables alone
// (-gline-tables-only) come with it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bytes.h"
#include "lines.h"

namespace emu::loader {

// Cheap to copy, safe to ask from several threads. What cannot be read gives no calls, never an error.
class InlineTable {
public:
    struct Sections {
        Bytes info, abbreviations, addresses, ranges, range_lists;
    };

    InlineTable() = default;
    // Keeps copies of the sections. `lines` has the names of files.
    InlineTable(const Sections& sections, LineTable lines);

    // Where the function that the instruction at an address (as linked) belongs to was called, where that one's caller was,
    // and so on outwards. Empty if nothing was put inline there.
    std::vector<Line> calls(uint64_t address) const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace emu::loader
