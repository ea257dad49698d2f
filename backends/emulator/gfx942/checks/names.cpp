// SPDX-License-Identifier: MIT
// The checks by name, and a finding as text.
#include <array>

#include "checks.h"
#include "core/control.h"
#include "core/text.h"

namespace emu::checks {
namespace {

struct Named {
    Check check;
    const char* name;
    const char* title;
};
constexpr Named kNames[] = {
    {kBounds, "bounds", "Invalid access"},
    {kMisaligned, "misaligned", "Misaligned access"},
    {kUninitialised, "uninitialised", "Use of an undefined value"},
    {kLdsRace, "lds-race", "Race in LDS"},
    {kWaitcnt, "waitcnt", "Register used before its load was waited for"},
    {kBarrier, "barrier", "Divergent barrier"},
    {kHazard, "hazard", "Missing wait states"},
    {kGlobalRace, "global-race", "Race between workgroups"},
};

}  // namespace

u32 parse(const std::string& text) {
    std::array<std::pair<const char*, u32>, std::size(kNames)> names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = {kNames[i].name, kNames[i].check};
    return control::checks(text, names, kAll);
}

std::string name(Check check) {
    for (const Named& named : kNames)
        if (named.check == check) return named.name;
    return "unknown";
}

std::string text(const Finding& finding) {
    std::string title;
    for (const Named& named : kNames)
        if (named.check == finding.check) title = named.title;
    std::string result = "========= " + title + ": " + finding.message + "\n=========     at " +
                         (finding.function.empty() ? finding.kernel : finding.function) + "+" + hex(finding.pc);
    if (!finding.function.empty()) result += ", called by " + finding.kernel;
    if (!finding.file.empty()) result += " in " + finding.file + ":" + std::to_string(finding.line);
    for (const std::string& call : finding.calls) result += "\n=========     inlined at " + call;
    result += "\n=========     " + finding.instruction;
    result += "\n=========     by workgroup (" + std::to_string(finding.group.x) + "," +
              std::to_string(finding.group.y) + "," + std::to_string(finding.group.z) + "), wave " +
              std::to_string(finding.wave);
    if (finding.lane >= 0) result += ", lane " + std::to_string(finding.lane);
    if (!finding.allocation.empty()) result += "\n=========     " + finding.allocation;
    if (!finding.other.empty()) result += "\n=========     " + finding.other;
    if (finding.times > 1) result += "\n=========     " + std::to_string(finding.times) + " times at this instruction";
    return result;
}

}  // namespace emu::checks
