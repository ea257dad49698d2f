// SPDX-License-Identifier: MIT
#include "options.h"

#include <algorithm>
#include <stdexcept>

#include "checks/checks.h"
#include "core/immortal.h"
#include "core/memory.h"

namespace emu {
namespace control {
namespace {

void apply(Options& options, const std::string& option, const std::string& value) {
    if (option == "checks") options.checks = checks::parse(value);
    else if (option == "threads") options.threads = threads(number(option, value));
    else if (option == "tensors") options.tensors = truth(option, value);
    else if (option == "devices")
        options.devices = static_cast<unsigned>(std::clamp<uint64_t>(number(option, value), 1, 16));
    else if (option == "counters") options.counters = truth(option, value);
    else if (option == "record") options.record = std::min<uint64_t>(number(option, value), 2);
    else if (option == "services") options.services = truth(option, value);
    else if (option == "sample") options.sample = number(option, value);
    else if (option == "keep") options.keep = truth(option, value);
    else if (option == "strict") options.strict = truth(option, value);
    else if (option == "unordered") options.unordered = truth(option, value);
    else if (option == "report") options.report = truth(option, value);
    else if (option == "log") options.log = value;
    else if (option == "halt") options.halt = truth(option, value);
    else if (option == "slice") options.slice = number(option, value);
    else if (option == "limit") options.limit = number(option, value);
    else
        throw std::invalid_argument(
            "no option '" + option +
            "'; there are checks, report, log, threads, devices, tensors, counters, record, sample, keep, services, "
            "strict, unordered, halt, slice, limit");
}

// WARPWAVE_EMULATOR="checks=bounds+hazard,threads=2"
Options initial() {
    Options options;
    options.threads = threads(0);
    bool silent = false;
    from_environment("WARPWAVE_EMULATOR", [&](const std::string& option, const std::string& value) {
        apply(options, option, value);
        silent |= option == "report" && !options.report;
    });
    // Whoever sets checks from outside of a program hears of them; a program that sets them asks for its findings.
    options.report = options.checks && !silent;
    return options;
}

struct Current {
    Options options = initial();
};

}  // namespace

const Options& options() { return immortal<Current>().options; }

void set(const std::string& option, const std::string& value) {
    Options& options = immortal<Current>().options;
    apply(options, option, value);
    if (option == "checks") options.report = false;
}

Kept& kept_counters() { return immortal<Kept>(); }

}  // namespace control

bool tensors_are_device_memory() { return control::options().tensors; }

}  // namespace emu
