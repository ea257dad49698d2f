// SPDX-License-Identifier: MIT
#include "link.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace emu::ptx {
namespace {

/// Functions that a statement calls by their names, and whether it calls one by an address.
void note_calls(const Function& function, std::vector<std::string>& direct, bool& indirect) {
    for (const Statement& each : function.statements) {
        if (each.words[0] != "call") continue;
        const Operand& callee = each.operands[1];
        if (callee.kind == Operand::Kind::Symbol) direct.push_back(callee.name);
        else indirect = true;
    }
}

class Linking {
public:
    Linking(const Module& module, std::string_view kernel) : module_(module) {
        add(std::string(kernel), true);
        follow(true);
        if (!indirect_) return;
        for (const std::string& each : module.taken()) add(each, false);
        follow(false);
    }

    Linked linked() {
        Linked result;
        std::vector<std::unique_ptr<Function>> parts = std::move(parts_);
        result.routines.resize(parts.size());
        for (size_t i = 0; i < parts.size(); ++i) {
            Routine& routine = result.routines[i];
            routine.name = names_[i];
            routine.refusal = refusals_[i];
            routine.optional = optional_[i];
            routine.address = module_.address(names_[i]);
            if (parts[i]) append(result, routine, std::move(parts[i]));
        }
        return result;
    }

private:
    void add(const std::string& name, bool needed) {
        const auto alias = module_.aliases.find(name);
        const std::string& known = alias == module_.aliases.end() ? name : alias->second;
        if (!module_.bodies.contains(known) || !seen_.insert(known).second) return;
        names_.push_back(known);
        refusals_.emplace_back();
        optional_.push_back(!needed);
        parts_.emplace_back();
        try {
            parts_.back() = module_.function(known);
            if (parts_.size() > 1 && parts_.back()->entry) throw SourceError("a call of the kernel " + known);
        } catch (const SourceError& error) {
            if (needed) throw;
            refusals_.back() = error.what();
        }
    }

    /// What those that are there call.
    void follow(bool needed) {
        for (; next_ < parts_.size(); ++next_) {
            std::vector<std::string> direct;
            if (parts_[next_]) note_calls(*parts_[next_], direct, indirect_);
            for (const std::string& each : direct) add(each, needed);
        }
    }

    static void append(Linked& all, Routine& routine, std::unique_ptr<Function> part) {
        const Slots slots = assign_slots(*part);
        const u32 base = (all.slots.bytes + 63) / 64 * 64;
        const auto registers = static_cast<u32>(all.slots.offset.size());
        std::map<i32, u8> places;
        for (size_t i = 0; i < slots.offset.size(); ++i) {
            const bool used = slots.offset[i] >= 0;
            const i32 offset = used ? slots.offset[i] + static_cast<i32>(base) : -1;
            all.slots.offset.push_back(offset);
            if (used) places[offset] = part->registers[i].bytes;
        }
        all.slots.bytes = base + slots.bytes;
        for (const auto& [offset, bytes] : places) routine.slots.push_back({offset, bytes});
        routine.frame_bytes = part->frame_bytes;
        routine.frame_align = part->frame_align;
        for (const Operand& each : part->given) routine.given.push_back(place(each, *part, all.slots, registers));
        for (const Operand& each : part->results) routine.results.push_back(place(each, *part, all.slots, registers));
        if (!all.function) {
            routine.end = static_cast<u32>(part->statements.size());
            all.function = std::move(part);
            return;
        }
        Function& into = *all.function;
        routine.begin = static_cast<u32>(into.statements.size());
        const auto variables = into.variables.size(), tables = into.branch_tables.size();
        for (Statement& each : part->statements) {
            for (Operand& operand : each.operands) shift(operand, registers, variables);
            if (each.guard >= 0) each.guard += static_cast<i32>(registers);
            if (each.target >= 0) each.target += static_cast<i32>(each.words[0] == "brx" ? tables : routine.begin);
            into.statements.push_back(std::move(each));
        }
        routine.end = static_cast<u32>(into.statements.size());
        for (std::vector<u32>& table : part->branch_tables) {
            for (u32& target : table) target += routine.begin;
            into.branch_tables.push_back(std::move(table));
        }
        std::move(part->registers.begin(), part->registers.end(), std::back_inserter(into.registers));
        std::move(part->variables.begin(), part->variables.end(), std::back_inserter(into.variables));
    }

    static Place place(const Operand& operand, const Function& part, const Slots& slots, u32 registers) {
        if (operand.kind == Operand::Kind::Register) {
            const u8 bytes = part.registers[operand.reg].bytes;
            return {Place::Where::Register, slots.offset[registers + operand.reg], bytes};
        }
        const Variable& variable = part.variables[operand.value];
        return {Place::Where::Frame, static_cast<i32>(variable.offset), static_cast<u32>(variable.bytes)};
    }

    static void shift(Operand& operand, u32 registers, size_t variables) {
        if (operand.kind == Operand::Kind::Register) operand.reg += registers;
        if (operand.kind == Operand::Kind::Variable) operand.value += variables;
        for (Operand& part : operand.parts) shift(part, registers, variables);
    }

    const Module& module_;
    std::vector<std::string> names_, refusals_;
    std::vector<bool> optional_;
    std::vector<std::unique_ptr<Function>> parts_;
    std::set<std::string, std::less<>> seen_;
    size_t next_ = 0;
    bool indirect_ = false;
};

}  // namespace

Linked link(const Module& module, std::string_view kernel) { return Linking(module, kernel).linked(); }

}  // namespace emu::ptx
