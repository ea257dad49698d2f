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

u64 key_of(u64 way, u32 index) { return mix(way, index + 1); }

// Operations that follow each other are neighbours in both tables.
std::atomic<u64>& place_of(HazardTable& table, u64 way, u32 index) {
    return table.seen[((way >> 8) + index) & (table.seen.size() - 1)];
}

bool keeps_all(HazardTable& table, u64 way, u32 index) {
    if (!way) return table.straight[index].load(std::memory_order_relaxed);
    return place_of(table, way, index).load(std::memory_order_relaxed) == key_of(way, index);
}

void note(HazardTable& table, u64 way, u32 index) {
    if (!way) table.straight[index].store(1, std::memory_order_relaxed);
    else place_of(table, way, index).store(key_of(way, index), std::memory_order_relaxed);
}

void examine(Wave& w, const Op& op) {
    const HazardWave& state = w.shadow->hazards;
    LaunchShadow& shadow = launch_of(w);
    const Launch& launch = *shadow.launch;
    const Op* recent[kHazardWindow];
    u32 classes[kHazardWindow];
    const size_t count = std::min<size_t>(state.count, kHazardWindow);
    for (size_t i = 0; i < count; ++i) {
        const u32 index = state.history[(state.count - 1 - i) % state.history.size()];
        recent[i] = &launch.program->ops[index];
        classes[i] = w.shadow->facts[index].hazard;
    }
    const Hazard hazard = find_hazard(op, w.shadow->facts[op.index].hazard, recent, classes, count);
    if (!hazard.required) return note(shadow.plan->hazards, state.way, op.index);
    {
        const std::lock_guard lock(shadow.mutex);
        if (!shadow.hazards.reported.insert(key_of(state.way, op.index)).second) return;
    }
    report(
        w, op, kHazard, -1,
        hazard.text + ": " + std::to_string(hazard.required) + " wait state" + (hazard.required == 1 ? "" : "s") +
            " must come between, there " + (hazard.found == 1 ? "is " : "are ") + std::to_string(hazard.found),
        "",
        "the earlier instruction: " + disassemble(hazard.earlier->inst) + " at " +
            where(launch, hazard.earlier->index));
}

}  // namespace

HazardTable::HazardTable(size_t operations) : straight(operations), seen(std::bit_ceil(operations * kSlotsPerOp)) {}

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
    if (!keeps_all(*w.shadow->hazard_table, state.way, index)) [[unlikely]]
        examine(w, op);
    state.history[state.count++ % state.history.size()] = index;
}

}  // namespace hazards
}  // namespace emu::checks
