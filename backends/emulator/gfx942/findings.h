// SPDX-License-Identifier: MIT
// Findings after their launch: kept for whoever takes them, and told to the user of a program that takes none.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "checks/checks.h"

namespace emu::findings {

/// After every checked launch. With the option `report`, findings at places that are new go to stderr at once, and the
/// end of the process brings a summary; with `log`, they are also appended to that file, a JSON object a line.
void keep(std::vector<checks::Finding>);

/// What was kept since the last call, oldest first; of more than 1000 the newest.
std::deque<checks::Finding> take();

/// As an object of JSON.
std::string describe(const checks::Finding&);

}  // namespace emu::findings
