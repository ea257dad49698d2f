// SPDX-License-Identifier: MIT
// What both libraries have beside a vendor's API, for whoever drives them: options by name, and JSON text that waits to be taken.
// Their C functions, warpwave_emulator_*, take and return text, so that a caller needs no header.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "scalars.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace emu::control {

/// The device's own: throws std::invalid_argument with the options or values there are.
void set(const std::string& option, const std::string& value);

/// Values of options; throw std::invalid_argument.
bool truth(const std::string& option, const std::string& value);
u64 number(const std::string& option, const std::string& value);
/// As many CPU threads as are asked for; 0: one a core.
unsigned threads(u64 asked);
/// Bits of "all", "none", or names separated by commas or '+'; a name after '-' is taken away from what is there, which is
/// `first` to begin with.
u32 checks(const std::string& text, std::span<const std::pair<const char*, u32>> names, u32 all, u32 first = 0);

/// Each option of an environment variable, "checks=all,threads=2"; what `apply` throws is told on stderr.
void from_environment(
    const char* variable, const std::function<void(const std::string& option, const std::string& value)>& apply);

/// Objects of JSON, of which the newest 1000 are kept.
class Kept {
public:
    void keep(std::string json);
    /// As an array. They are gone then.
    std::string take();

private:
    std::mutex mutex_;
    std::deque<std::string> all_;
};

/// A finding: as text on stderr if `report`, and as a line of JSON behind the file `log` unless that is "".
void tell(bool report, const std::string& log, const std::string& text, const std::string& json);

/// For a caller in C, who gives it back with warpwave_emulator_free.
char* copied(const std::string& text);

}  // namespace emu::control
