// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "../run.h"

namespace emu::ptx {

/// Everything that was counted of a finished launch, as a JSON object with the names of the emulated MI300X where both count the
/// same. Nothing in it is modelled, and there are no times.
std::string counted(const Launch&, const Tally&);

}  // namespace emu::ptx
