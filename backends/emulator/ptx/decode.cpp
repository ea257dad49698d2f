// SPDX-License-Identifier: MIT
// From statements to operations: places for registers, constants and variables, then a handler for each.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "builder.h"
#include "core/immortal.h"
#include "link.h"

namespace emu::ptx {
namespace {

std::map<std::string, Decoder, std::less<>>& table() { return immortal<std::map<std::string, Decoder, std::less<>>>(); }

constexpr std::pair<const char*, Special> kSpecials[] = {
    {"%tid.x", Special::TidX},
    {"%tid.y", Special::TidY},
    {"%tid.z", Special::TidZ},
    {"%ntid.x", Special::NtidX},
    {"%ntid.y", Special::NtidY},
    {"%ntid.z", Special::NtidZ},
    {"%ctaid.x", Special::CtaidX},
    {"%ctaid.y", Special::CtaidY},
    {"%ctaid.z", Special::CtaidZ},
    {"%nctaid.x", Special::NctaidX},
    {"%nctaid.y", Special::NctaidY},
    {"%nctaid.z", Special::NctaidZ},
    {"%laneid", Special::LaneId},
    {"%warpid", Special::WarpId},
    {"%nwarpid", Special::NwarpId},
    {"%lanemask_eq", Special::LanemaskEq},
    {"%lanemask_lt", Special::LanemaskLt},
    {"%lanemask_le", Special::LanemaskLe},
    {"%lanemask_gt", Special::LanemaskGt},
    {"%lanemask_ge", Special::LanemaskGe},
    {"%clusterid.x", Special::ClusteridX},
    {"%clusterid.y", Special::ClusteridY},
    {"%clusterid.z", Special::ClusteridZ},
    {"%nclusterid.x", Special::NclusteridX},
    {"%nclusterid.y", Special::NclusteridY},
    {"%nclusterid.z", Special::NclusteridZ},
    {"%cluster_ctaid.x", Special::ClusterCtaidX},
    {"%cluster_ctaid.y", Special::ClusterCtaidY},
    {"%cluster_ctaid.z", Special::ClusterCtaidZ},
    {"%cluster_nctaid.x", Special::ClusterNctaidX},
    {"%cluster_nctaid.y", Special::ClusterNctaidY},
    {"%cluster_nctaid.z", Special::ClusterNctaidZ},
    {"%cluster_ctarank", Special::ClusterCtarank},
    {"%cluster_nctarank", Special::ClusterNctarank},
    {"%is_explicit_cluster", Special::IsExplicitCluster},
    {"%smid", Special::SmId},
    {"%nsmid", Special::NsmId},
    {"%gridid", Special::GridId},
    {"%dynamic_smem_size", Special::DynamicSmemSize},
    {"%total_smem_size", Special::TotalSmemSize},
};

class Decoding final : public Builder {
public:
    Decoding(const Module& module, Linked linked, const Addresses& addresses)
        : module_(module), addresses_(addresses), program_(std::make_unique<Program>()),
          slots_(std::move(linked.slots)) {
        program_->name = linked.function->name;
        program_->files = module.files;
        program_->function = std::move(linked.function);
        program_->routines = std::move(linked.routines);
        program_->arch = std::atoi(module.target.c_str() + (module.target.starts_with("sm_") ? 3 : 0));
        place_variables();
        end_ = round_up(slots_.bytes, 64);
        scratch_ = place(16);
    }

    std::unique_ptr<Program> run() {
        for (; routine_ < program_->routines.size(); ++routine_) {
            Routine& routine = program_->routines[routine_];
            if (!routine.refusal.empty()) continue;
            try {
                decode(routine);
            } catch (const SourceError& error) {
                if (!routine.optional) throw;
                routine.refusal = error.what();
                program_->ops.resize(routine.begin);
                for (u32 i = routine.begin; i < routine.end; ++i) program_->ops.emplace_back().statement = i;
            }
        }
        note_recursion();
        program_->register_bytes = end_;
        watch_registers(*program_);
        return std::move(program_);
    }

    void call() override {
        Call call;
        call.at = op.statement;
        call.caller = static_cast<u32>(routine_);
        const Operand& callee = statement->operands[1];
        for (const Operand& each : statement->operands[0].parts) call.results.push_back(place(each));
        for (const Operand& each : statement->operands[2].parts) call.given.push_back(place(each));
        if (callee.kind == Operand::Kind::Register) {
            op.operand[0] = offset(callee, 8);
        } else {
            const u64 address = module_.address(callee.name);
            for (size_t i = 0; address && i < program_->routines.size(); ++i)
                if (program_->routines[i].address == address) call.callee = static_cast<i32>(i);
            if (call.callee < 0) throw SourceError("there is no function " + callee.name + " in the PTX");
            const std::string why = unlike(call, program_->routines[static_cast<size_t>(call.callee)]);
            if (!why.empty()) throw SourceError(why);
        }
        op.extra = static_cast<u32>(program_->calls.size());
        program_->calls.push_back(std::move(call));
    }

    u32 routine() const override { return static_cast<u32>(routine_); }

    i32 offset(const Operand& operand, u32 bytes) override {
        using Kind = Operand::Kind;
        switch (operand.kind) {
            case Kind::Register: return known(operand, bytes);
            case Kind::Number:
                if (bytes == 4 && operand.float_bytes == 8)
                    return constant(as_u32(static_cast<f32>(as_f64(operand.value))), 4);
                return constant(operand.value, bytes);
            case Kind::Special: return special(operand.name);
            case Kind::Variable: return variable(operand.value, bytes);
            case Kind::Symbol: return constant(symbol(operand.name), bytes);
            case Kind::Sink: return scratch_;
            default: throw SourceError("an operand of this form is not supported");
        }
    }

    i32 target(const Operand& operand, u32 bytes) override {
        if (operand.kind == Operand::Kind::Sink) return scratch_;
        if (operand.kind != Operand::Kind::Register) throw SourceError("a register expected");
        return known(operand, bytes);
    }

    i32 constant(u64 value, u32 bytes) override {
        if (bytes == 4) value = static_cast<u32>(value);
        const auto [known, fresh] = constants_.try_emplace({value, bytes}, 0);
        if (fresh) {
            std::vector<Program::Line>& pool = program_->constants;
            known->second = -1 - static_cast<i32>(64 * pool.size());
            const size_t lines = bytes ? bytes * kLanes / 64 : 1;
            pool.resize(pool.size() + lines);
            u8* const at = pool[pool.size() - lines].bytes;
            if (bytes == 0) {
                const u32 mask = value ? kAllLanes : 0;
                std::memcpy(at, &mask, 4);
            } else {
                for (u32 i = 0; i < bytes * kLanes; ++i)
                    at[i] = i % bytes < 8 ? static_cast<u8>(value >> (8 * (i % bytes))) : 0;
            }
        }
        return known->second;
    }

    void list(const Operand& operand, u32 bytes, bool written) override {
        op.list = static_cast<u32>(program_->lists.size());
        const auto add = [&](const Operand& each) {
            program_->lists.push_back(written ? target(each, bytes) : offset(each, bytes));
            ++op.count;
        };
        op.count = 0;
        if (operand.kind == Operand::Kind::List)
            for (const Operand& part : operand.parts) add(part);
        else add(operand);
    }

    void address(const Operand& operand, size_t slot, u32 bytes) override {
        if (operand.kind != Operand::Kind::Address) throw SourceError("an address in brackets expected");
        op.immediate += operand.offset;
        const Operand& base = operand.parts[0];
        const bool narrow = base.kind == Operand::Kind::Register && registers()[base.reg].bytes == 4;
        if (bytes == 8 && narrow) throw SourceError("an address of 32 bits where one of 64 is needed");
        if (bytes == 4 && base.kind == Operand::Kind::Register && !narrow) {
            // A 64-bit register with an address of shared memory: its low halves.
            op.extra |= 1u << slot;
            op.operand[slot] = known(base, 8);
            return;
        }
        op.operand[slot] = offset(base, bytes);
    }

    i32 carry() override { return carry_ ? carry_ : carry_ = place(2); }

    int arch() const override { return program_->arch; }
    const Function& function() const override { return *program_->function; }

private:
    void decode(const Routine& routine) {
        Function& function = *program_->function;
        for (u32 i = routine.begin; i < routine.end; ++i) {
            statement = &function.statements[i];
            op = Op{};
            op.statement = i;
            op.target = statement->target;
            const std::string& word = statement->words[0];
            op.lasting = (word == "st" && !statement->has("param")) || word == "red" || word == "stmatrix" ||
                         word == "cp" || word == "mma" || word == "wmma" || word == "wgmma";
            if (statement->guard >= 0) {
                op.guard = slots_.offset[static_cast<size_t>(statement->guard)];
                op.guard_negated = statement->guard_negated;
            }
            const Decoder decoder = find_decoder(word);
            bool known = false;
            try {
                known = decoder && decoder(*this);
            } catch (const SourceError& error) {
                refuse(std::string(": ") + error.what());
            }
            if (!known) refuse("");
            program_->ops.push_back(op);
        }
    }

    Place place(const Operand& operand) {
        using Where = Place::Where;
        if (operand.kind == Operand::Kind::Number) return {Where::Number, constant(operand.value, 8), 8};
        if (operand.kind == Operand::Kind::Variable) {
            const Variable& each = program_->function->variables[operand.value];
            if (each.space != Space::Shared)
                return {Where::Frame, static_cast<i32>(each.offset), static_cast<u32>(each.bytes)};
        }
        if (operand.kind != Operand::Kind::Register) throw SourceError("a call cannot hand over " + operand.name);
        const u8 bytes = registers()[operand.reg].bytes;
        if (!bytes) throw SourceError("a call that hands over a predicate is not supported");
        return {Where::Register, slots_.offset[operand.reg], bytes};
    }

    /// Calls within circles of calls. Those by addresses may be of every function that has one.
    void note_recursion() {
        const size_t count = program_->routines.size();
        std::vector<std::vector<bool>> reaches(count, std::vector<bool>(count));
        const auto each_callee = [&](const Call& call, const auto& visit) {
            if (call.callee >= 0) return visit(static_cast<size_t>(call.callee));
            for (size_t i = 1; i < count; ++i)
                if (program_->routines[i].refusal.empty()) visit(i);
        };
        for (const Call& call : program_->calls)
            each_callee(call, [&](size_t callee) { reaches[call.caller][callee] = true; });
        for (size_t middle = 0; middle < count; ++middle)
            for (size_t from = 0; from < count; ++from)
                for (size_t to = 0; reaches[from][middle] && to < count; ++to)
                    if (reaches[middle][to]) reaches[from][to] = true;
        for (Call& call : program_->calls)
            each_callee(
                call, [&](size_t callee) { call.keeps |= callee == call.caller || reaches[callee][call.caller]; });
    }

    const std::vector<Register>& registers() const { return program_->function->registers; }

    i32 known(const Operand& operand, u32 bytes) const {
        const u8 have = registers()[operand.reg].bytes;
        if (have != bytes)
            throw SourceError(
                operand.name + " has " + (have ? std::to_string(have) + " bytes" : "one bit") + " and " +
                (bytes ? std::to_string(bytes) + " are" : "one is") + " needed");
        return slots_.offset[operand.reg];
    }

    /// The address of a variable of the function's own.
    i32 variable(u64 number, u32 bytes) {
        const Variable& each = program_->function->variables[number];
        if (each.space == Space::Shared) return constant(own_shared_.at(number), bytes);
        if (!routine_) return constant(each.offset, bytes);
        const auto [known, fresh] = frame_addresses_.try_emplace({number, bytes}, 0);
        if (fresh) {
            known->second = place(bytes);
            program_->routines[routine_].addresses.push_back(
                {known->second, static_cast<u8>(bytes), static_cast<u32>(each.offset)});
        }
        return known->second;
    }

    i32 place(u32 bytes) {
        const auto at = static_cast<i32>(end_);
        end_ += bytes * static_cast<u32>(kLanes);
        return at;
    }

    i32 special(const std::string& name) {
        if (name == "WARP_SZ") return constant(kLanes, 4);
        const auto* const row = std::find_if(
            std::begin(kSpecials), std::end(kSpecials), [&](const auto& each) { return name == each.first; });
        if (row == std::end(kSpecials)) throw SourceError("the special register " + name + " is not supported");
        const auto [known, fresh] = specials_.try_emplace(name, 0);
        if (fresh) {
            known->second = place(name == "%gridid" ? 8 : 4);
            program_->specials.push_back({row->second, known->second});
        }
        return known->second;
    }

    u64 symbol(const std::string& name) const {
        if (name == "WARP_SZ") return kLanes;
        if (const auto known = variables_.find(name); known != variables_.end()) return known->second;
        if (const u64 address = addresses_.of(name)) return address;
        if (const u64 address = module_.address(name)) return address;
        throw SourceError("there is no variable " + name);
    }

    void place_variables() {
        Function& function = *program_->function;
        std::set<std::string> used;
        std::set<u64> own;
        const auto note = [&](const auto& self, const Operand& operand) -> void {
            if (operand.kind == Operand::Kind::Symbol) used.insert(operand.name);
            if (operand.kind == Operand::Kind::Variable) own.insert(operand.value);
            for (const Operand& part : operand.parts) self(self, part);
        };
        for (const Statement& each : function.statements)
            for (const Operand& operand : each.operands) note(note, operand);
        std::vector<std::pair<const Variable*, u64*>> shared, dynamic;  // and where their addresses go
        for (const Variable& each : module_.variables)
            if (each.space == Space::Shared && used.contains(each.name))
                (each.bytes ? shared : dynamic).emplace_back(&each, &variables_[each.name]);
        for (const u64 number : own) {
            const Variable& each = function.variables[number];
            if (each.space == Space::Shared) (each.bytes ? shared : dynamic).emplace_back(&each, &own_shared_[number]);
        }
        u64 bytes = 0;
        for (const auto& [each, address] : shared) {
            *address = bytes = round_up(bytes, each->align);
            bytes += each->bytes;
            program_->shared_align = std::max(program_->shared_align, each->align);
        }
        program_->static_shared_bytes = static_cast<u32>(bytes);
        for (const auto& [each, address] : dynamic) {
            *address = round_up(bytes, std::max(16u, each->align));
            program_->shared_align = std::max(program_->shared_align, each->align);
        }
        program_->local_bytes = function.frame_bytes;
        for (const Variable& each : function.parameters) variables_[each.name] = kParamWindow + each.offset;
    }

    [[noreturn]] void refuse(const std::string& why) const {
        throw SourceError(
            "PTX line " + std::to_string(statement->ptx_line) + ": '" + statement->text + "' is not supported" + why);
    }

    const Module& module_;
    const Addresses& addresses_;
    std::unique_ptr<Program> program_;
    Slots slots_;
    u32 end_ = 0;
    i32 scratch_ = 0, carry_ = 0;
    std::map<std::pair<u64, u32>, i32> constants_;
    std::map<std::string, i32> specials_;
    std::map<std::string, u64> variables_;  // shared and parameters: offsets
    std::map<u64, u64> own_shared_;         // of a function's own variables
    std::map<std::pair<u64, u32>, i32> frame_addresses_;
    size_t routine_ = 0;
};

}  // namespace

std::string unlike(const Call& call, const Routine& callee) {
    const auto fits = [](const Place& a, const Place& b) {
        return a.where == Place::Where::Number || std::max(4u, a.bytes) == std::max(4u, b.bytes);
    };
    const auto all = [&](const std::vector<Place>& a, const std::vector<Place>& b) {
        return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), fits);
    };
    if (!all(call.given, callee.given)) return "the arguments are not those that " + callee.name + " takes";
    if (!call.results.empty() && !all(call.results, callee.results)) return "the result is not that of " + callee.name;
    return "";
}

void add_decoder(const char* word, Decoder decoder) { table()[word] = decoder; }

Decoder find_decoder(std::string_view word) {
    const auto found = table().find(word);
    return found == table().end() ? nullptr : found->second;
}

std::unique_ptr<Program> decode(const Module& module, std::string_view name, const Addresses& addresses) {
    std::unique_ptr<Program> program = Decoding(module, link(module, name), addresses).run();
    for (const Statement& each : program->function->statements)
        program->allocates |=
            each.words[0] == "call" && (each.operands[1].name == "malloc" || each.operands[1].name == "free");
    return program;
}

std::string Program::place(const Op& op) const {
    const Statement& s = function->statements[op.statement];
    const auto file = files.find(s.file);
    std::string where = "kernel " + name;
    for (const Routine& each : routines)
        if (op.statement >= each.begin && op.statement < each.end && &each != routines.data())
            where += ", function " + each.name;
    if (file != files.end()) where += ", " + file->second + ":" + std::to_string(s.line);
    return where + ", PTX line " + std::to_string(s.ptx_line) + ": " + s.text;
}

}  // namespace emu::ptx
