// SPDX-License-Identifier: MIT
// The checks by name, and a finding as text.
#include <cinttypes>
#include <cstdio>
#include <stdexcept>

#include "checks.h"

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

u32 one(const std::string& word) {
    if (word == "all") return kAll;
    for (const Named& named : kNames)
        if (word == named.name) return named.check;
    std::string known;
    for (const Named& named : kNames) known += std::string(", ") + named.name;
    throw std::invalid_argument("no check '" + word + "'; there are all, none" + known);
}

}  // namespace

u32 parse(const std::string& text) {
    u32 result = 0;
    size_t begin = 0;
    while (begin <= text.size()) {
        const size_t end = text.find_first_of(",+", begin);
        std::string word = text.substr(begin, end == std::string::npos ? end : end - begin);
        if (word == "none" || word.empty())
            ;
        else if (word[0] == '-') result &= ~one(word.substr(1));
        else result |= one(word);
        if (end == std::string::npos) break;
        begin = end + 1;
    }
    return result;
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
    char pc[32];
    std::snprintf(pc, sizeof pc, "+0x%" PRIx64, finding.pc);
    std::string result = "========= " + title + ": " + finding.message + "\n=========     at " +
                         (finding.function.empty() ? finding.kernel : finding.function) + pc;
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
