// SPDX-License-Identifier: MIT
#include "findings.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include <unistd.h>

#include "core/immortal.h"
#include "core/json.h"
#include "options.h"

namespace emu::findings {
namespace {

constexpr size_t kKept = 1000;
constexpr int kFailed = 1;  // the exit status of a program that would have ended with 0

struct State {
    std::mutex mutex;
    std::deque<checks::Finding> kept;
    std::set<std::tuple<checks::Check, std::string, std::string, u64>> told;  // check, kernel, function, pc
    std::map<std::string, u64> by_check;                                      // of those told
    u64 times = 0, launches = 0;
};

State& state() { return immortal<State>(); }

std::string summary(const State& s) {
    const std::string launches = std::to_string(s.launches) + " checked launch" + (s.launches == 1 ? "" : "es");
    if (s.told.empty()) return "========= no findings in " + launches;
    std::string checks;
    for (const auto& [name, count] : s.by_check)
        checks += (checks.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return "========= " + std::to_string(s.told.size()) + (s.told.size() == 1 ? " finding (" : " findings (") + checks +
           "), " + std::to_string(s.times) + (s.times == 1 ? " time" : " times") + " in " + launches;
}

// Registered when the library is loaded, so it runs behind the program's own handlers and sees the status they leave.
void at_exit(int status, void*) {
    State& s = state();
    if (!control::options().report || !s.launches) return;
    std::fprintf(stderr, "%s\n", summary(s).c_str());
    if (status != 0 || s.told.empty()) return;
    std::fflush(nullptr);
    _exit(kFailed);
}

__attribute__((constructor)) void watch_exit() { on_exit(at_exit, nullptr); }

}  // namespace

void keep(std::vector<checks::Finding> findings) {
    const Options& options = control::options();
    State& s = state();
    const std::lock_guard lock(s.mutex);
    ++s.launches;
    for (checks::Finding& finding : findings) {
        s.times += finding.times;
        if (s.told.insert({finding.check, finding.kernel, finding.function, finding.pc}).second) {
            ++s.by_check[checks::name(finding.check)];
            control::tell(options.report, options.log, checks::text(finding), describe(finding));
        }
        s.kept.push_back(std::move(finding));
        if (s.kept.size() > kKept) s.kept.pop_front();
    }
}

std::deque<checks::Finding> take() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    return std::exchange(s.kept, {});
}

std::string describe(const checks::Finding& finding) {
    json::Value value = json::object();
    value.set("check", checks::name(finding.check)).set("message", finding.message).set("kernel", finding.kernel);
    value.set("workgroup", json::array({finding.group.x, finding.group.y, finding.group.z}));
    value.set("wave", finding.wave).set("lane", finding.lane).set("pc", finding.pc).set("function", finding.function);
    value.set("instruction", finding.instruction).set("file", finding.file).set("line", finding.line);
    json::Value calls = json::array({});
    for (const std::string& call : finding.calls) calls.push(call);
    value.set("calls", calls)
        .set("allocation", finding.allocation)
        .set("other", finding.other)
        .set("times", finding.times);
    return value.set("text", checks::text(finding)).text();
}

}  // namespace emu::findings
