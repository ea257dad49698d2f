// SPDX-License-Identifier: MIT
// Which source line an instruction came from: DWARF 4 and 5 line tables (.debug_line).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bytes.h"

namespace emu::loader {

struct Line {
    std::string file;       // as the compiler was given it, behind its directory unless absolute
    uint32_t line, column;  // from 1; column 0 is unknown
};

// Cheap to copy, safe to ask from several threads. Damaged tables give no line, never an error: they serve messages.
class LineTable {
public:
    LineTable() = default;
    // Keeps copies of the sections; only code in [text_begin, text_end) is known.
    LineTable(Bytes lines, Bytes line_strings, Bytes strings, uint64_t text_begin, uint64_t text_end);

    // The line of the instruction at an address as linked (not as placed). The first question reads the tables.
    std::optional<Line> find(uint64_t address) const;

    // The name of file `number` of the unit at `offset` of .debug_line.
    std::optional<std::string> file(uint64_t offset, uint64_t number) const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace emu::loader
