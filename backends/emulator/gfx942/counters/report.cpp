// SPDX-License-Identifier: MIT
#include "../../json.h"
#include "counters.h"

namespace emu::counters {

std::string report(const Launch& launch, const Tally& tally, double host_seconds) {
    u64 instructions = 0;
    for (const u64 each : tally.executed) instructions += each;
    json::Value result = json::object();
    result.set("kernel", launch.kernel->name).set("instructions", instructions).set("host_seconds", host_seconds);
    return result.text();
}

}  // namespace emu::counters
