// SPDX-License-Identifier: MIT
// Registers that a wgmma works on: from the instruction until its group is waited for they are nobody else's, and what others
// have changed needs a wgmma.fence before. PTX ISA 9.0, section 9.7.15.
//
// Compilers copy such registers between the instructions of the source; ptxas makes one register of the copies. So `mov` is no
// access: what holds of its source holds of its target.
#include "../liveness.h"
#include "../warp.h"
#include "checks.h"

namespace emu::ptx {
namespace {

bool is_product(const Statement& s) { return s.words[0] == "wgmma" && s.words[1] == "mma_async"; }
bool is_copy(const Statement& s) {
    return s.words[0] == "mov" && s.operands.size() == 2 && s.operands[0].kind == Operand::Kind::Register &&
           (s.operands[1].kind == Operand::Kind::Register || s.operands[1].kind == Operand::Kind::Number);
}

void registers_of(const Operand& operand, std::vector<u32>& into) {
    if (operand.kind == Operand::Kind::Register) into.push_back(operand.reg);
    for (const Operand& part : operand.parts) registers_of(part, into);
}

}  // namespace

void watch_registers(Program& program) {
    const Function& function = *program.function;
    std::vector<bool> watched(function.registers.size());
    std::vector<u32> list;
    for (const Statement& s : function.statements)
        if (is_product(s)) {
            registers_of(s.operands[0], list);
            if (s.operands[1].kind == Operand::Kind::List) registers_of(s.operands[1], list);
        }
    for (const u32 reg : list) watched[reg] = true;
    if (list.empty()) return;
    for (bool changed = true; changed;) {
        changed = false;
        for (const Statement& s : function.statements) {
            if (!is_copy(s) || s.operands[1].kind != Operand::Kind::Register) continue;
            const u32 to = s.operands[0].reg, from = s.operands[1].reg;
            if (watched[to] == watched[from]) continue;
            watched[to] = watched[from] = true;
            changed = true;
        }
    }
    std::vector<u32> number(function.registers.size());
    for (u32 reg = 0; reg < watched.size(); ++reg)
        if (watched[reg]) number[reg] = program.watched++;
    for (size_t i = 0; i < function.statements.size(); ++i) {
        const Statement& s = function.statements[i];
        Program::Touched touched;
        std::vector<u32> reads, writes;
        if (is_product(s)) {
            registers_of(s.operands[0], writes);
            if (s.operands[1].kind == Operand::Kind::List) registers_of(s.operands[1], reads);
        } else {
            Effects all = effects(s);
            writes = std::move(all.writes);
            // A guarded instruction keeps what it may not write; that is no reading.
            for (const Operand& operand : s.operands) {
                std::vector<u32> of;
                registers_of(operand, of);
                const bool target = &operand == s.operands.data() && !writes.empty();
                if (!target) reads.insert(reads.end(), of.begin(), of.end());
            }
        }
        touched.begin = static_cast<u32>(program.touched_registers.size());
        for (const u32 reg : reads)
            if (watched[reg]) program.touched_registers.push_back(number[reg]), ++touched.reads;
        for (const u32 reg : writes)
            if (watched[reg]) program.touched_registers.push_back(number[reg]), ++touched.writes;
        if (!touched.reads && !touched.writes && s.words[0] != "wgmma") continue;
        touched.what = is_product(s)                                    ? Program::Touched::What::Product
                       : s.words[0] == "wgmma" && s.words[1] == "fence" ? Program::Touched::What::Fence
                       : is_copy(s)                                     ? Program::Touched::What::Copy
                                                                        : Program::Touched::What::Other;
        program.ops[i].watched = static_cast<i32>(program.touched.size());
        program.touched.push_back(touched);
    }
}

void Checks::products_done(Warp& w, u64 count) {
    state(w).done = std::max(state(w).done, count);
    done(w, kAllLanes, products_actor(w), static_cast<u32>(count));
}

void Checks::registers(Warp& w, const Op& op) {
    using What = Program::Touched::What;
    State& s = state(w);
    const Program::Touched& t = program_.touched[static_cast<size_t>(op.watched)];
    const u32* const reads = program_.touched_registers.data() + t.begin;
    const u32* const writes = reads + t.reads;
    const auto in_flight = [&](u64 number) { return number > s.done; };
    const auto say = [&](const char* what) { found(w, kInFlight, what); };
    switch (t.what) {
        case What::Fence: ++s.fences; return;
        case What::Copy: {
            const u32 to = *writes;
            s.writes[to] = t.reads ? s.writes[*reads] : 0;
            s.reads[to] = 0;
            s.changed[to] = t.reads ? s.changed[*reads] : 0;
            return;
        }
        case What::Product: {
            const u64 number = w.products + 1;
            for (u32 i = 0; i < t.reads; ++i) {
                if (in_flight(s.writes[reads[i]]))
                    say("A is in registers that a wgmma before still writes: its group is not waited for");
                if (s.changed[reads[i]] >= s.fences) say("a register of A has been changed since the last wgmma.fence");
                s.reads[reads[i]] = number;
            }
            for (u32 i = 0; i < t.writes; ++i) {
                if (in_flight(s.reads[writes[i]]))
                    say("the product goes to registers that a wgmma before still reads as A");
                if (s.changed[writes[i]] >= s.fences)
                    say("a register of the accumulator has been changed since the last wgmma.fence");
                s.writes[writes[i]] = number;
            }
            return;
        }
        case What::Other:
            for (u32 i = 0; i < t.reads; ++i)
                if (in_flight(s.writes[reads[i]]))
                    say("reads a register that a wgmma still writes: its group is not waited for");
            for (u32 i = 0; i < t.writes; ++i) {
                if (in_flight(s.writes[writes[i]]) || in_flight(s.reads[writes[i]]))
                    say("writes a register that a wgmma still works on: its group is not waited for");
                s.writes[writes[i]] = s.reads[writes[i]] = 0;
                s.changed[writes[i]] = s.fences;
            }
    }
}

}  // namespace emu::ptx
