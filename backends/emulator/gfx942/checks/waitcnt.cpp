// SPDX-License-Identifier: MIT
// VM_CNT counts vector memory instructions and comes back in order; LGKM_CNT counts LDS (in order) and scalar loads (in any
// order: only zero says something about them); FLAT counts in both. The emulator's loads are done at once, so results never
// depend on this check; silicon would have given the register's old value.
#include <algorithm>
#include <cstring>

#include "shadow.h"

namespace emu::checks {
namespace {

constexpr unsigned kVmMost = 63, kLgkmMost = 15;

bool is(const Op& op, const char* name) { return !std::strcmp(op.inst.row->name, name); }

u8& count_of(WaitcntWave& state, Registers::File file, unsigned index) {
    return file == Registers::Vector ? state.vgpr[index] : state.sgpr[index];
}

void change(WaitcntWave& state, const Registers& registers, int by) {
    for (unsigned i = 0; i < registers.count; ++i) {
        u8& count = count_of(state, registers.file, registers.first + i);
        count = static_cast<u8>(count + by);
    }
}

void settle(WaitcntWave& state, std::deque<WaitcntWave::Pending>& queue, size_t left) {
    // What comes back in any order is known to be there only when nothing of this counter is left.
    if (left && std::any_of(queue.begin(), queue.end(), [](const auto& each) { return !each.in_order; })) return;
    while (queue.size() > left) {
        change(state, queue.front().registers, -1);
        queue.pop_front();
    }
}

void issue(WaitcntWave& state, std::deque<WaitcntWave::Pending>& queue, const Op& op, const Registers& registers, bool in_order) {
    queue.push_back({registers, op.index, in_order});
    change(state, registers, 1);
}

const WaitcntWave::Pending* find(const std::deque<WaitcntWave::Pending>& queue, const Registers& registers) {
    for (const auto& pending : queue)
        if (pending.registers.file == registers.file && registers.first < pending.registers.first + pending.registers.count &&
            pending.registers.first < registers.first + registers.count)
            return &pending;
    return nullptr;
}

void complain(Wave& w, const Op& op, const Registers& used, bool reads) {
    const WaitcntWave& state = w.shadow->waitcnt;
    const auto* in_vm = find(state.vm, used);
    const auto* pending = in_vm ? in_vm : find(state.lgkm, used);
    if (!pending) return;
    const auto& queue = in_vm ? state.vm : state.lgkm;
    const size_t behind = static_cast<size_t>(std::count_if(queue.begin(), queue.end(), [&](const auto& each) { return &each > pending; }));
    const std::string file = used.file == Registers::Scalar ? "s" : "v";
    report(w, op, kWaitcnt, -1,
           std::string(reads ? "reads" : "overwrites") + " a register of " + file + "[" + std::to_string(used.first) + ":" +
               std::to_string(used.first + used.count - 1) + "] while a load into it is under way; s_waitcnt " +
               (in_vm ? "vmcnt(" : "lgkmcnt(") + std::to_string(pending->in_order ? behind : 0) + ") or less must come between",
           "", "the load: " + where(*w.group->launch, pending->op));
}

Registers registers_of(const Operand& operand) {
    if (!operand.dwords || (operand.kind != Operand::Vector && operand.kind != Operand::Scalar)) return {Registers::Vector, 0, 0};
    return {operand.kind == Operand::Vector ? Registers::Vector : Registers::Scalar, operand.dwords, operand.index};
}

void wait(Wave& w, u32 simm) {
    WaitcntWave& state = w.shadow->waitcnt;
    const unsigned vm = (simm & 15) | (simm >> 14 & 3) << 4, lgkm = simm >> 8 & 15;
    if (vm < kVmMost) settle(state, state.vm, vm);
    if (lgkm < kLgkmMost) settle(state, state.lgkm, lgkm);
}

}  // namespace

void begin(WaitcntWave& state, const Wave& wave) { state.vgpr.assign(wave.vgpr_count, 0); }

namespace waitcnt {

void before(Wave& w, const Op& op) {
    WaitcntWave& state = w.shadow->waitcnt;
    if (!op.inst.row) return;
    if (state.vm.empty() && state.lgkm.empty()) return;
    if (op.inst.format == Format::Sopp) {
        if (is(op, "s_waitcnt")) wait(w, static_cast<u32>(op.inst.simm));
        return;
    }
    auto pending = [&](const Registers& registers) {
        for (unsigned i = 0; i < registers.count; ++i)
            if (count_of(state, registers.file, registers.first + i)) return true;
        return false;
    };
    for (int i = 0; i < op.read_count; ++i)
        if (pending(op.reads[i])) return complain(w, op, op.reads[i], true);
    // A load may be followed by another into the same register of the same kind: they arrive in order.
    const bool load = op.inst.row->format >= Format::Ds || op.inst.format == Format::Smem;
    for (int i = 0; i < op.write_count && !load; ++i)
        if (pending(op.writes[i])) return complain(w, op, op.writes[i], false);
}

void after(Wave& w, const Op& op) {
    if (!op.inst.row) return;
    WaitcntWave& state = w.shadow->waitcnt;
    const Registers into = registers_of(op.dst);
    switch (op.inst.row->format) {
        case Format::Smem: issue(state, state.lgkm, op, into, false); break;
        case Format::Ds: issue(state, state.lgkm, op, into, true); break;
        case Format::Flat:
            issue(state, state.vm, op, into, true);
            issue(state, state.lgkm, op, into, true);
            break;
        case Format::Global: case Format::Scratch: case Format::Mubuf: case Format::Mtbuf:
            issue(state, state.vm, op, into, true);
            break;
        default: return;
    }
    // The counters are that wide; the hardware stalls beyond.
    if (state.vm.size() > kVmMost) settle(state, state.vm, kVmMost);
    if (state.lgkm.size() > 2 * kLgkmMost) settle(state, state.lgkm, 2 * kLgkmMost);
}

}  // namespace waitcnt
}  // namespace emu::checks
