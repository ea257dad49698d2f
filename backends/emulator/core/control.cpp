// SPDX-License-Identifier: MIT
#include "control.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "memory.h"

namespace emu::control {

bool truth(const std::string& option, const std::string& value) {
    if (value == "1" || value == "on" || value == "true") return true;
    if (value == "0" || value == "off" || value == "false") return false;
    throw std::invalid_argument(option + " is 0 or 1, not '" + value + "'");
}

u64 number(const std::string& option, const std::string& value) {
    size_t used = 0;
    u64 result = 0;
    try {
        if (!value.starts_with('-')) result = std::stoull(value, &used);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): `used` stays 0
    }
    if (!used || used != value.size()) throw std::invalid_argument(option + " is a number, not '" + value + "'");
    return result;
}

unsigned threads(u64 asked) {
    return asked ? static_cast<unsigned>(asked) : std::max(1u, std::thread::hardware_concurrency());
}

u32 checks(const std::string& text, std::span<const std::pair<const char*, u32>> names, u32 all, u32 first) {
    const auto one = [&](const std::string& word) {
        if (word == "all") return all;
        std::string known;
        for (const auto& [name, bits] : names) {
            if (word == name) return bits;
            known += std::string(", ") + name;
        }
        throw std::invalid_argument("no check '" + word + "'; there are all, none" + known);
    };
    u32 result = first;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find_first_of(",+", at), text.size());
        const std::string word = text.substr(at, end - at);
        at = end + 1;
        if (word == "none" || word.empty()) continue;
        if (word[0] == '-') result &= ~one(word.substr(1));
        else result |= one(word);
    }
    return result;
}

void from_environment(const char* variable, const std::function<void(const std::string&, const std::string&)>& apply) {
    const char* text = std::getenv(variable);
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        const size_t comma = rest.find(',');
        const std::string word = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        const size_t equals = word.find('=');
        try {
            if (equals == std::string::npos) throw std::invalid_argument("'" + word + "' has no value");
            apply(word.substr(0, equals), word.substr(equals + 1));
        } catch (const std::invalid_argument& error) {
            std::fprintf(stderr, "%s: %s (ignored)\n", variable, error.what());
        }
    }
}

void Kept::keep(std::string json) {
    constexpr size_t kMost = 1000;
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(json));
    if (all_.size() > kMost) all_.pop_front();
}

std::string Kept::take() {
    const std::lock_guard lock(mutex_);
    std::string list = "[";
    for (const std::string& each : all_) list += (list.size() > 1 ? "," : "") + each;
    all_.clear();
    return list + "]";
}

void tell(bool report, const std::string& log, const std::string& text, const std::string& json) {
    if (report) std::fprintf(stderr, "%s\n", text.c_str());
    if (log.empty()) return;
    // Opened and closed for each, so that processes of one program can share the file.
    if (std::FILE* const file = std::fopen(log.c_str(), "a")) {
        std::fprintf(file, "%s\n", json.c_str());
        std::fclose(file);
    }
}

char* copied(const std::string& text) {
    char* const memory = static_cast<char*>(std::malloc(text.size() + 1));
    if (memory) std::memcpy(memory, text.c_str(), text.size() + 1);
    return memory;
}

}  // namespace emu::control

using namespace emu;

/// Sets an option; 0, or 1 with the reason on stderr.
EXPORTED int warpwave_emulator_set(const char* option, const char* value) {
    try {
        control::set(option, value);
        return 0;
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "emulator: %s\n", error.what());
        return 1;
    }
}

/// Gives back what another function has returned.
EXPORTED void warpwave_emulator_free(char* text) { std::free(text); }

/// Makes a host range known to the bounds check.
EXPORTED int warpwave_emulator_register(const void* memory, size_t size, const char* name) {
    register_host(memory, size, name);
    return 0;
}

EXPORTED int warpwave_emulator_unregister(const void* memory) { return unregister_host(memory) ? 0 : 1; }
