// SPDX-License-Identifier: MIT
#include "liveness.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace emu::ptx {
namespace {

// Instructions whose first operand is no result, even where it is a register.
constexpr std::array kNoResult = {"st",      "red",           "bra",        "brx",       "bar",      "barrier",
                                  "cp",      "prefetch",      "trap",       "membar",    "fence",    "exit",
                                  "ret",     "wgmma",         "setmaxnreg", "nanosleep", "stmatrix", "griddepcontrol",
                                  "discard", "applypriority", "tensormap",  "multimem",  "call"};

bool has_result(const Statement& statement) {
    const std::string& word = statement.words[0];
    if (word == "bar" || word == "barrier") return statement.has("red");
    return std::none_of(kNoResult.begin(), kNoResult.end(), [&](const char* each) { return word == each; });
}

void collect(const Operand& operand, std::vector<u32>& into) {
    if (operand.kind == Operand::Kind::Register) into.push_back(operand.reg);
    for (const Operand& part : operand.parts) collect(part, into);
}

using Bits = std::vector<u64>;

bool merge(Bits& into, const Bits& from) {
    bool changed = false;
    for (size_t i = 0; i < into.size(); ++i) {
        const u64 before = into[i];
        into[i] |= from[i];
        changed |= into[i] != before;
    }
    return changed;
}

struct Part {  // a basic block
    u32 begin = 0, end = 0;
    std::vector<u32> next;
    Bits in, out;
};

std::vector<Part> parts_of(const Function& function) {
    const auto count = static_cast<u32>(function.statements.size());
    std::vector<bool> starts(count + 1);
    starts[0] = true;
    const auto targets = [&](const Statement& s) {
        std::vector<u32> list;
        if (s.words[0] == "bra") list.push_back(static_cast<u32>(s.target));
        if (s.words[0] == "brx") list = function.branch_tables[static_cast<size_t>(s.target)];
        return list;
    };
    const auto ends = [](const Statement& s) {
        return s.words[0] == "bra" || s.words[0] == "brx" || s.words[0] == "ret" || s.words[0] == "exit";
    };
    for (u32 i = 0; i < count; ++i) {
        for (const u32 target : targets(function.statements[i])) starts[target] = true;
        if (ends(function.statements[i])) starts[i + 1] = true;
    }
    std::vector<Part> parts;
    std::vector<u32> of(count + 1);
    for (u32 i = 0; i < count; ++i) {
        if (starts[i]) parts.push_back({i, i, {}, {}, {}});
        parts.back().end = i + 1;
        of[i] = static_cast<u32>(parts.size()) - 1;
    }
    for (Part& part : parts) {
        const Statement& last = function.statements[part.end - 1];
        for (const u32 target : targets(last))
            if (target < count) part.next.push_back(of[target]);
        if ((!ends(last) || last.guard >= 0) && part.end < count) part.next.push_back(of[part.end]);
    }
    return parts;
}

void erase(Bits& set, u32 reg) { set[reg / 64] &= ~(u64{1} << (reg % 64)); }
void insert(Bits& set, u32 reg) { set[reg / 64] |= u64{1} << (reg % 64); }

void backwards(const std::vector<Effects>& all, const Part& part, Bits& live, auto&& visit) {
    for (u32 i = part.end; i-- > part.begin;) {
        for (const u32 reg : all[i].writes) erase(live, reg);
        for (const u32 reg : all[i].reads) insert(live, reg);
        visit(i);
    }
}

struct Interval {
    u32 reg, first, last;
};

constexpr u32 kNever = ~u32{0};

std::vector<Interval> intervals(const Function& function) {
    std::vector<Effects> all;
    all.reserve(function.statements.size());
    for (const Statement& statement : function.statements) all.push_back(effects(statement));
    std::vector<Part> parts = parts_of(function);
    const size_t words = (function.registers.size() + 63) / 64;
    for (Part& part : parts) part.in = part.out = Bits(words);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t p = parts.size(); p-- > 0;) {
            Part& part = parts[p];
            for (const u32 next : part.next) merge(part.out, parts[next].in);
            Bits live = part.out;
            backwards(all, part, live, [](u32) {});
            changed |= merge(part.in, live);
        }
    }
    std::vector<Interval> found(function.registers.size());
    for (u32 reg = 0; reg < found.size(); ++reg) found[reg] = {reg, kNever, 0};
    const auto touch = [&](u32 reg, u32 at) {
        found[reg].first = std::min(found[reg].first, at);
        found[reg].last = std::max(found[reg].last, at);
    };
    const auto touch_all = [&](const Bits& set, u32 at) {
        for (size_t i = 0; i < set.size(); ++i)
            for (u64 word = set[i]; word; word &= word - 1)
                touch(static_cast<u32>(64 * i + static_cast<size_t>(std::countr_zero(word))), at);
    };
    for (const Part& part : parts) {
        touch_all(part.in, part.begin);
        touch_all(part.out, part.end);  // up to the first statement behind
        for (u32 i = part.begin; i < part.end; ++i) {
            for (const u32 reg : all[i].reads) touch(reg, i);
            for (const u32 reg : all[i].writes) touch(reg, i), touch(reg, i + 1);
        }
    }
    std::erase_if(found, [](const Interval& each) { return each.first == kNever; });
    std::sort(found.begin(), found.end(), [](const Interval& a, const Interval& b) { return a.first < b.first; });
    return found;
}

u32 place_bytes(u8 bytes) { return bytes == 0 ? 4 : bytes * static_cast<u32>(kLanes); }

}  // namespace

Effects effects(const Statement& s) {
    Effects result;
    if (s.guard >= 0) result.reads.push_back(static_cast<u32>(s.guard));
    size_t from = 0;
    if (s.words[0] == "call") {
        collect(s.operands[0], result.writes);
        from = 2;
    } else if (has_result(s) && !s.operands.empty() && s.operands[0].kind != Operand::Kind::Address) {
        collect(s.operands[0], result.writes);
        from = 1;
    } else if (s.words[0] == "wgmma" && !s.operands.empty()) {
        collect(s.operands[0], result.writes);  // and read: see below
    }
    for (size_t i = from; i < s.operands.size(); ++i) collect(s.operands[i], result.reads);
    if (s.guard >= 0) result.reads.insert(result.reads.end(), result.writes.begin(), result.writes.end());
    return result;
}

Slots assign_slots(const Function& function) {
    Slots slots;
    slots.offset.assign(function.registers.size(), -1);
    std::vector<Interval> active;
    std::map<u32, std::vector<i32>> free;  // by size
    // Predicates are small: they lie behind each other, from the start.
    u32 predicates = 0;
    for (const Register& each : function.registers) predicates += each.bytes == 0;
    slots.bytes = (4 * predicates + 63) / 64 * 64;
    i32 next_predicate = 0;
    for (const Interval& each : intervals(function)) {
        std::erase_if(active, [&](const Interval& old) {
            if (old.last >= each.first) return false;
            free[place_bytes(function.registers[old.reg].bytes)].push_back(slots.offset[old.reg]);
            return true;
        });
        const u32 size = place_bytes(function.registers[each.reg].bytes);
        std::vector<i32>& places = free[size];
        if (!places.empty()) {
            slots.offset[each.reg] = places.back();
            places.pop_back();
        } else if (size == 4) {
            slots.offset[each.reg] = next_predicate;
            next_predicate += 4;
        } else {
            slots.offset[each.reg] = static_cast<i32>(slots.bytes);
            slots.bytes += size;
        }
        active.push_back(each);
    }
    return slots;
}

}  // namespace emu::ptx
