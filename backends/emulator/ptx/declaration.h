// SPDX-License-Identifier: MIT
// Variables and parameters as PTX declares them.
#pragma once

#include <optional>

#include "scanner.h"

namespace emu::ptx {

/// Of ".shared" and the like; nothing for another directive.
std::optional<Space> space_named(const std::string& directive);

/// ".align 16 .b8 name[12][3] = {…}", after the space; several names with commas are several variables.
std::vector<Variable> variables(Scanner&, Space);

/// In parentheses, of a kernel or a device function. What is a register there is of the space Register.
std::vector<Variable> parameters(Scanner&);

/// Places variables one behind the other; `bytes`: what is taken before and after.
void place(std::vector<Variable>&, u64& bytes);

}  // namespace emu::ptx
