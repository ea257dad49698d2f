// SPDX-License-Identifier: MIT
#include "hazards.h"

#include "shadow.h"

namespace emu::checks {
namespace {

constexpr size_t kSlotsPerOp = 8;

u64 mix(u64 a, u64 b) {
    u64 x = (a ^ b) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

void examine(Wave& w, const Op& op) {
    const HazardWave& state = w.shadow->hazards;
    const Launch& launch = *w.group->launch;
    const Op* recent[kHazardWindow];
    u32 classes[kHazardWindow];
    const size_t count = std::min<size_t>(state.count, kHazardWindow);
    for (size_t i = 0; i < count; ++i) {
        const u32 index = state.history[(state.count - 1 - i) % state.history.size()];
        recent[i] = &launch.program->ops[index];
        classes[i] = w.shadow->facts[index].hazard;
    }
    const Hazard hazard = find_hazard(op, w.shadow->facts[op.index].hazard, recent, classes, count);
    if (!hazard.required) return;
    report(
        w, op, kHazard, -1,
        hazard.text + ": " + std::to_string(hazard.required) + " wait state" + (hazard.required == 1 ? "" : "s") +
            " must come between, there " + (hazard.found == 1 ? "is " : "are ") + std::to_string(hazard.found),
        "",
        "the earlier instruction: " + disassemble(hazard.earlier->inst) + " at " +
            where(launch, hazard.earlier->index));
}

// Operations that follow each other are neighbours in both tables.
bool judged(HazardTable& table, u64 way, u32 index) {
    if (!way) {
        std::atomic<u8>& place = table.straight[index];
        if (place.load(std::memory_order_relaxed)) [[likely]]
            return true;
        place.store(1, std::memory_order_relaxed);
        return false;
    }
    const u64 key = mix(way, index + 1);
    std::atomic<u64>& place = table.seen[((way >> 8) + index) & (table.seen.size() - 1)];
    if (place.load(std::memory_order_relaxed) == key) [[likely]]
        return true;
    place.store(key, std::memory_order_relaxed);
    return false;
}

}  // namespace

void begin(HazardTable& table, const Launch& launch) {
    const size_t count = launch.program->ops.size();
    table.straight = std::vector<std::atomic<u8>>(count);
    table.seen = std::vector<std::atomic<u64>>(std::bit_ceil(count * kSlotsPerOp));
}

void begin(HazardWave&, const Wave&) {}

namespace hazards {

void before(Wave& w, const Op& op) {
    HazardWave& state = w.shadow->hazards;
    const u32 index = op.index;
    if (index == state.previous + 1) [[likely]] {
        if (++state.run >= kHazardWindow) state.way = 0;
    } else {
        state.way = mix(state.way, u64{state.previous} << 32 | index) | 1;
        state.run = 0;
    }
    state.previous = index;
    if (!judged(launch_of(w).hazards, state.way, index)) [[unlikely]]
        examine(w, op);
    state.history[state.count++ % state.history.size()] = index;
}

}  // namespace hazards
}  // namespace emu::checks
