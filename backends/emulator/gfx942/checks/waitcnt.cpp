// SPDX-License-Identifier: MIT
// VM_CNT counts vector memory instructions and comes back in order; LGKM_CNT counts LDS (in order) and scalar loads (in any
// order: only zero says something about them); FLAT counts in both, in any order. The emulator's loads are done at once, so
// results never depend on this check; silicon would have given the register's old value.
#include <algorithm>

#include "shadow.h"

namespace emu::checks {
namespace {

using Pending = WaitcntWave::Pending;
constexpr size_t kVmMost = 63, kLgkmMost = 15;

u64* bits_of(WaitcntWave& state, Registers::File file) { return file == Registers::Vector ? state.vgpr : state.sgpr; }

u64 ones(unsigned count) { return count >= 64 ? ~u64{0} : (u64{1} << count) - 1; }

bool any(WaitcntWave& state, const Registers& registers) {
    const u64* const words = bits_of(state, registers.file) + registers.first / 64;
    const unsigned shift = registers.first % 64;
    if (words[0] >> shift & ones(registers.count)) return true;
    return shift + registers.count > 64 && words[1] & ones(shift + registers.count - 64);
}

void mark(WaitcntWave& state, const Registers& registers) {
    u64* const words = bits_of(state, registers.file);
    for (unsigned i = registers.first; i < registers.first + registers.count; ++i) words[i / 64] |= u64{1} << i % 64;
}

// How many of the oldest are done when the counter has come down to `left`.
size_t settled(const std::vector<Pending>& queue, size_t left) {
    if (queue.size() <= left) return 0;
    // What comes back in any order is known to be there only when nothing of this counter is left.
    if (left && std::any_of(queue.begin(), queue.end(), [](const Pending& each) { return !each.in_order; })) return 0;
    return queue.size() - left;
}

void settle(WaitcntWave& state, size_t vm, size_t lgkm) {
    if (!vm && !lgkm) return;
    state.vm.erase(state.vm.begin(), state.vm.begin() + static_cast<long>(vm));
    state.lgkm.erase(state.lgkm.begin(), state.lgkm.begin() + static_cast<long>(lgkm));
    std::fill(std::begin(state.vgpr), std::end(state.vgpr), 0);
    std::fill(std::begin(state.sgpr), std::end(state.sgpr), 0);
    for (const auto* queue : {&state.vm, &state.lgkm})
        for (const Pending& each : *queue) mark(state, each.registers);
}

const Pending* find(const std::vector<Pending>& queue, const Registers& registers) {
    for (const Pending& pending : queue)
        if (pending.registers.file == registers.file &&
            registers.first < pending.registers.first + pending.registers.count &&
            pending.registers.first < registers.first + registers.count)
            return &pending;
    return nullptr;
}

std::string text(const Wave& w, const Registers& registers) {
    const bool scalar = registers.file == Registers::Scalar;
    if (scalar && registers.first == kVcc) return "VCC";
    const u32 accumulators = w.group->launch->program->accum_offset;
    const bool accumulator = !scalar && registers.first >= accumulators;
    const u32 first = registers.first - (accumulator ? accumulators : 0);
    const std::string file = scalar ? "s" : accumulator ? "a" : "v";
    if (registers.count == 1) return file + std::to_string(first);
    return file + "[" + std::to_string(first) + ":" + std::to_string(first + registers.count - 1) + "]";
}

void complain(Wave& w, const Op& op, const Registers& used, bool reads) {
    const WaitcntWave& state = w.shadow->waitcnt;
    const Pending* const in_vm = find(state.vm, used);
    const Pending* const pending = in_vm ? in_vm : find(state.lgkm, used);
    if (!pending || repeated(w, op, kWaitcnt)) return;
    const auto& queue = in_vm ? state.vm : state.lgkm;
    const bool ordered = std::all_of(queue.begin(), queue.end(), [](const Pending& each) { return each.in_order; });
    const long behind = ordered ? &queue.back() - pending : 0;
    report(
        w, op, kWaitcnt, -1,
        std::string(reads ? "reads " : "overwrites ") + text(w, used) + " while a load into " +
            text(w, pending->registers) + " is under way; s_waitcnt " + (in_vm ? "vmcnt(" : "lgkmcnt(") +
            std::to_string(behind) + ") or less must come between",
        "", "the load: " + where(*w.group->launch, pending->op));
}

Registers registers_of(const Operand& operand) {
    if (!operand.dwords || (operand.kind != Operand::Vector && operand.kind != Operand::Scalar))
        return {Registers::Vector, 0, 0};
    return {operand.kind == Operand::Vector ? Registers::Vector : Registers::Scalar, operand.dwords, operand.index};
}

// A load may follow another one into the same register if they arrive in order.
bool arrives_after(const WaitcntWave& state, u32 what, const Registers& into) {
    if (what & kAnyOrder) return false;
    const bool vm = what & kCountsVm;
    const auto& own = vm ? state.vm : state.lgkm;
    if (find(vm ? state.lgkm : state.vm, into)) return false;
    return std::all_of(own.begin(), own.end(), [](const Pending& each) { return each.in_order; });
}

void issue(WaitcntWave& state, std::vector<Pending>& queue, const Pending& pending) {
    queue.push_back(pending);
    if (pending.registers.count) mark(state, pending.registers);
}

}  // namespace

void begin(WaitcntWave& state) {
    state.vm.clear();
    state.lgkm.clear();
    std::fill(std::begin(state.vgpr), std::end(state.vgpr), 0);
    std::fill(std::begin(state.sgpr), std::end(state.sgpr), 0);
}

namespace waitcnt {

void before(Wave& w, const Op& op) {
    WaitcntWave& state = w.shadow->waitcnt;
    if (state.vm.empty() && state.lgkm.empty()) return;
    const Facts& facts = w.shadow->facts[op.index];
    if (facts.what & kWaits) {
        const size_t vm = facts.wait_vm == kNoWait ? 0 : settled(state.vm, facts.wait_vm);
        return settle(state, vm, facts.wait_lgkm == kNoWait ? 0 : settled(state.lgkm, facts.wait_lgkm));
    }
    for (int i = 0; i < op.read_count; ++i)
        if (any(state, op.reads[i])) [[unlikely]]
            return complain(w, op, op.reads[i], true);
    if (facts.what & kReadsVcc) {
        constexpr Registers kMask{Registers::Scalar, 2, kVcc};
        if (any(state, kMask)) return complain(w, op, kMask, true);
    }
    for (int i = 0; i < op.write_count; ++i) {
        if (!any(state, op.writes[i])) [[likely]]
            continue;
        if (facts.what & kMemoryOp && arrives_after(state, facts.what, op.writes[i])) continue;
        return complain(w, op, op.writes[i], false);
    }
}

void after(Wave& w, const Op& op) {
    const Facts& facts = w.shadow->facts[op.index];
    if (!(facts.what & (kCountsVm | kCountsLgkm))) return;
    WaitcntWave& state = w.shadow->waitcnt;
    const Pending pending{registers_of(op.dst), op.index, !(facts.what & kAnyOrder)};
    if (facts.what & kCountsVm) issue(state, state.vm, pending);
    if (facts.what & kCountsLgkm) issue(state, state.lgkm, pending);
    // The counters are that wide; the hardware stalls beyond. What arrives in any order is given up some time.
    if (state.vm.size() > kVmMost)
        settle(state, std::max<size_t>(settled(state.vm, kVmMost), state.vm.size() > 2 * kVmMost), 0);
    if (state.lgkm.size() > kLgkmMost)
        settle(state, 0, std::max<size_t>(settled(state.lgkm, kLgkmMost), state.lgkm.size() > 4 * kLgkmMost));
}

}  // namespace waitcnt
}  // namespace emu::checks
