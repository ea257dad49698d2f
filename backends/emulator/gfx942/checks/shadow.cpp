// SPDX-License-Identifier: MIT
#include "shadow.h"

#include "../module.h"
#include "../options.h"
#include "../services.h"
#include "core/text.h"

namespace emu::checks {
namespace {

std::string pc_text(u64 pc) { return "pc " + hex(pc); }

/// The function that an address of the code lies in, or null.
const loader::Symbol* function_at(const loader::CodeObject& code, u64 address) {
    for (const loader::Symbol& symbol : code.symbols)
        if (symbol.function && address >= symbol.address && address - symbol.address < symbol.size) return &symbol;
    return nullptr;
}

std::string text_of(const loader::Line& line) { return line.file + ":" + std::to_string(line.line); }

u64 on_global_of_program(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    lanes = check_global(w, op, address, lanes, bytes, kind);
    if (on(w, kUninitialised)) uninitialised::on_global(w, op, lanes, kind);
    if (on(w, kGlobalRace)) global_race::on_global(w, op, address, lanes, bytes, kind);
    return lanes;
}

u64 linear(const Dim& group, const Dim& grid) { return group.x + u64{grid.x} * (group.y + u64{grid.y} * group.z); }

}  // namespace

std::shared_ptr<LaunchShadow> begin_launch(const Launch& launch, u32 enabled) {
    auto shadow = std::make_shared<LaunchShadow>();
    shadow->launch = &launch;
    shadow->enabled = enabled;
    shadow->plan = &plan_of(*launch.program);
    if (enabled & kGlobalRace) begin(shadow->global_race, launch);
    return shadow;
}

namespace {

// Shadows of workgroups that have ended, for the next ones of this CPU thread: their memory is most of what one costs.
constexpr size_t kSpares = 8;
thread_local std::vector<std::unique_ptr<GroupShadow>> spares;

std::shared_ptr<GroupShadow> fresh_shadow() {
    std::unique_ptr<GroupShadow> shadow;
    if (spares.empty()) {
        shadow = std::make_unique<GroupShadow>();
    } else {
        shadow = std::move(spares.back());
        spares.pop_back();
    }
    return {shadow.release(), [](GroupShadow* ended) {
        std::unique_ptr<GroupShadow> owner(ended);
        if (spares.size() < kSpares) spares.push_back(std::move(owner));
    }};
}

}  // namespace

std::shared_ptr<GroupShadow> begin_group(Workgroup& group) {
    std::shared_ptr<GroupShadow> shadow = fresh_shadow();
    shadow->launch = group.launch->shadow;
    const Plan& plan = *shadow->launch->plan;
    const u32 enabled = shadow->launch->enabled;
    group.shadow = shadow.get();
    shadow->bounds = {};
    if (enabled & kLdsRace) begin(shadow->lds_race, group, plan.lds_grain);
    if (enabled & kUninitialised) begin(shadow->uninitialised, group);
    if (enabled & kGlobalRace) begin(shadow->global_race);
    shadow->waves.resize(group.waves.size());
    for (Wave& wave : group.waves) {
        std::unique_ptr<WaveShadow>& place = shadow->waves[wave.id];
        if (!place) place = std::make_unique<WaveShadow>();
        wave.shadow = place.get();
        wave.shadow->group = shadow.get();
        wave.shadow->facts = plan.facts.data();
        wave.shadow->flows = plan.flows.data();
        wave.shadow->hazard_table = &plan.hazards;
        wave.shadow->enabled = enabled;
        if (enabled & kUninitialised) begin(wave.shadow->uninitialised, wave);
        if (enabled & kWaitcnt) begin(wave.shadow->waitcnt);
        if (enabled & kHazard) wave.shadow->hazards = {};
        if (enabled & kBarrier) wave.shadow->barrier = {};
    }
    return shadow;
}

void before(Wave& w, const Op& op) {
    const u32 enabled = w.shadow->enabled;
    const u16 what = w.shadow->facts[op.index].what;
    if (enabled & kHazard) hazards::before(w, op);
    if (enabled & kWaitcnt) waitcnt::before(w, op);
    if (enabled & kUninitialised) uninitialised::before(w, op);
    if (enabled & kBarrier && what & (kOutward | kBarrierOp)) barrier::before(w, op);
    if (enabled & kLdsRace && what & kWaits) lds_race::before(w, op);
    if (enabled & kGlobalRace && what & kReleases) global_race::before(w, op);
}

void after(Wave& w, const Op& op) {
    const u32 enabled = w.shadow->enabled;
    const u16 what = w.shadow->facts[op.index].what;
    if (enabled & kUninitialised) uninitialised::after(w, op);
    if (!(what & (kCountsVm | kCountsLgkm | kAcquires))) return;
    if (enabled & kGlobalRace && !w.group->shadow->global_race.doubts.empty()) [[unlikely]]
        global_race::resolve_doubts(w, op);
    if (enabled & kWaitcnt) waitcnt::after(w, op);
    if (enabled & kLdsRace) lds_race::after(w, op);
    if (enabled & kGlobalRace && what & kAcquires) global_race::after(w, op);
}

void at_barrier(Workgroup& group) {
    if (group.shadow->launch->on(kLdsRace)) lds_race::at_barrier(group);
}

void on_hang(Wave& w) {
    if (on(w, kBarrier)) barrier::on_hang(w);
}

std::vector<Finding> end_launch(LaunchShadow& shadow) {
    std::vector<Finding> findings;
    for (auto& [key, finding] : shadow.findings) {
        // Where an undefined address leads says nothing.
        const bool of_address = finding.check == kBounds || finding.check == kMisaligned;
        const auto cause = shadow.findings.find({kUninitialised, key.second});
        if (of_address && cause != shadow.findings.end() && cause->second.message.rfind("the address", 0) == 0)
            continue;
        findings.push_back(std::move(finding));
    }
    return findings;
}

u64 on_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (services::used.load(std::memory_order_relaxed)) [[unlikely]] {
        const u64 own = services::own_lanes(address, lanes);
        if (own) return own | (own == lanes ? 0 : on_global_of_program(w, op, address, lanes & ~own, bytes, kind));
    }
    return on_global_of_program(w, op, address, lanes, bytes, kind);
}

u64 on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    lanes = check_lds(w, op, address, lanes, bytes, kind);
    const u64 inside = on(w, kBounds) ? lanes : lanes_within(address, lanes, bytes, w.group->lds_bytes);
    if (on(w, kUninitialised)) uninitialised::on_lds(w, op, address, inside, bytes, kind);
    if (on(w, kLdsRace)) lds_race::on_lds(w, op, address, inside, bytes, kind);
    return lanes;
}

u64 on_scratch(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind) {
    lanes = check_scratch(w, op, offset, lanes, bytes, kind);
    if (on(w, kUninitialised)) uninitialised::on_scratch(w, op, offset, lanes, bytes, kind);
    return lanes;
}

bool on_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind kind) {
    if (services::used.load(std::memory_order_relaxed) && services::own_lanes(&address, 1)) [[unlikely]]
        return true;
    if (!check_scalar(w, op, address, bytes, kind)) return false;
    if (on(w, kGlobalRace)) global_race::on_scalar(w, op, address, bytes, kind);
    return true;
}

std::string where(const Launch& launch, u32 op_index) {
    const Op& op = launch.program->ops[op_index];
    const loader::CodeObject& code = launch.module->code;
    const std::vector<loader::Line> calls = code.inlined.calls(code.text_begin + op.pc);
    const std::string from = calls.empty() ? "" : " (inlined at " + text_of(calls.back()) + ")";
    if (const auto line = code.lines.find(code.text_begin + op.pc)) return text_of(*line) + from;
    return pc_text(code.text_begin + op.pc - launch.kernel->entry);
}

bool repeated(Wave& w, const Op& op, Check check) {
    LaunchShadow& shadow = launch_of(w);
    const std::lock_guard lock(shadow.mutex);
    const auto found = shadow.findings.find({check, op.index});
    if (found == shadow.findings.end() || linear(found->second.group, shadow.launch->grid) > w.group->linear)
        return false;
    ++found->second.times;
    return true;
}

void report(
    Wave& w, const Op& op, Check check, int lane, std::string message, std::string allocation, std::string other) {
    LaunchShadow& shadow = launch_of(w);
    const Launch& launch = *shadow.launch;
    {
        const loader::CodeObject& code = launch.module->code;
        const std::lock_guard lock(shadow.mutex);
        const auto [place, fresh] = shadow.findings.try_emplace({check, op.index});
        Finding& finding = place->second;
        if (!fresh) ++finding.times;
        if (fresh || linear(finding.group, launch.grid) > w.group->linear) {
            finding.check = check;
            finding.message = std::move(message);
            finding.kernel = launch.kernel->name;
            finding.group = w.group->id;
            finding.wave = static_cast<int>(w.id);
            finding.lane = lane;
            finding.pc = code.text_begin + op.pc - launch.kernel->entry;
            const loader::Symbol* const function = function_at(code, code.text_begin + op.pc);
            if (function && function->address != launch.kernel->entry) {
                finding.function = function->name;
                finding.pc = code.text_begin + op.pc - function->address;
            }
            finding.instruction = disassemble(op.inst);
            if (const auto line = code.lines.find(code.text_begin + op.pc)) {
                finding.file = line->file;
                finding.line = line->line;
            }
            finding.calls.clear();
            for (const loader::Line& call : code.inlined.calls(code.text_begin + op.pc))
                finding.calls.push_back(text_of(call));
            finding.allocation = std::move(allocation);
            finding.other = std::move(other);
        }
    }
    if (control::options().halt) fault(w, op, name(check) + " check failed");
}

}  // namespace emu::checks
