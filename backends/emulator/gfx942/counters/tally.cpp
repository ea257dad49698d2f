// SPDX-License-Identifier: MIT
// Counting while a kernel runs: what memory instructions ask for and what it costs them in cache lines and LDS cycles.
//
// An instruction in a loop mostly repeats the addresses of its last execution, shifted; then nothing has to be counted again.
#include <algorithm>

#include "../memory.h"
#include "../ops/access.h"
#include "banks.h"
#include "counters.h"
#include "model.h"

namespace emu::counters {

// Addresses of an access, less the first active lane's, and what they cost.
struct Pattern {
    u64 lanes = 0;                      // 0: nothing yet
    u32 bytes = 0;
    bool global = false;
    u64 within = 0;                     // where in its line the first lane's access begins
    alignas(64) u64 difference[kLanes]; // LDS: words, in the first half
    LdsCost cost{};
    int count = 0;                      // of lines
    i64 line[2 * kLanes];               // less the first lane's line
};

struct Patterns {
    Pattern way[2];                     // instructions with two addresses a lane have one each
    int oldest = 0;
    u64 begin = 0, end = 0, shift = 0;  // where it accessed memory last, and how far that begins behind a line's begin
};

namespace {

constexpr u32 kDies = 8;                // workgroups go to the XCDs in turn

Memory& entry(Wave& w, const Op& op) { return w.group->tally->memory[op.index]; }

u64 count(u64 lanes) { return static_cast<u64>(std::popcount(lanes)); }

Patterns& patterns_of(Wave& w, const Op& op) {
    std::unique_ptr<Patterns>& place = w.group->tally->patterns[op.index];
    if (!place) place = std::make_unique<Patterns>();
    return *place;
}

// A GPU's allocator begins at a line; host memory that stands for its memory (torch aligns to 64 bytes) is taken to do so, too.
u64 on_device(Patterns& patterns, u64 address) {
    if (address < patterns.begin || address >= patterns.end) {
        const Allocation* const allocation = find_allocation(address);
        patterns.begin = allocation ? allocation->begin : address / kLine * kLine;
        patterns.end = allocation ? allocation->end() : patterns.begin + kLine;
        patterns.shift = patterns.begin % kLine;
    }
    return address - patterns.shift;
}

// Lanes that take no part count as the first one that does.
template <class A>
A relative(const A* address, u64 lanes, A* difference) {
    const A first = address[std::countr_zero(lanes)];
    for (int lane = 0; lane < kLanes; ++lane) difference[lane] = address[lane] - first;
    if (lanes != kAllLanes)
        for (u64 rest = ~lanes; rest; rest &= rest - 1) difference[std::countr_zero(rest)] = 0;
    return first;
}

// The pattern of this access: `fresh` if it is a new one, whose cost is still to be found.
template <class A>
Pattern& pattern_of(Patterns& patterns, u64 lanes, u32 bytes, u64 within, const A* difference, bool& fresh) {
    constexpr bool kGlobal = sizeof(A) == sizeof(u64);
    fresh = false;
    for (Pattern& each : patterns.way)
        if (each.within == within && each.lanes == lanes && each.bytes == bytes && each.global == kGlobal &&
            !std::memcmp(each.difference, difference, kLanes * sizeof(A)))
            return each;
    Pattern& pattern = patterns.way[patterns.oldest];
    patterns.oldest ^= 1;
    pattern.lanes = lanes;
    pattern.bytes = bytes;
    pattern.within = within;
    pattern.global = kGlobal;
    std::memcpy(pattern.difference, difference, kLanes * sizeof(A));
    fresh = true;
    return pattern;
}

// Lines of one access on their way out of the CU: what the L1 does not have goes on to the L2 and into the footprint.
class Way {
public:
    Way(Wave& w, AccessKind kind, bool around_l1)
        : tally_(*w.group->tally), die_(static_cast<u32>(w.group->linear % kDies)), kind_(kind), around_(around_l1) {
        if (tally_.l1_group == w.group->linear) return;
        std::fill(std::begin(tally_.l1), std::end(tally_.l1), ~u64{0});
        tally_.l1_group = w.group->linear;
    }

    void take(u64 line) {
        if (kind_ == AccessKind::Read && !around_) {
            u64& held = tally_.l1[line * 0x9e3779b97f4a7c15u >> 56];    // spreads strides over its 256 lines
            if (held == line) return;
            held = line;
        }
        ++beyond;
        if (kind_ != AccessKind::Write) tally_.footprint.mark(line, die_, false);
        if (kind_ != AccessKind::Read) tally_.footprint.mark(line, die_, true);
    }

    u64 beyond = 0;

private:
    Tally& tally_;
    u32 die_;
    AccessKind kind_;
    bool around_;
};

void trace(Wave& w, const Op& op, u64 cycles, u64 beyond) {
    if (Trace* const trace = w.group->trace) [[unlikely]] trace->cost(w.id, op.index, cycles, beyond);
}

}  // namespace

Tally::Tally(size_t operations) : executed(operations), memory(operations), patterns(operations) {}
Tally::Tally(Tally&&) noexcept = default;
Tally::~Tally() = default;

void Tally::add(Tally&& other) {
    for (size_t i = 0; i < executed.size(); ++i) {
        executed[i] += other.executed[i];
        memory[i].lanes += other.memory[i].lanes;
        memory[i].bytes += other.memory[i].bytes;
        memory[i].lines += other.memory[i].lines;
        memory[i].beyond += other.memory[i].beyond;
        memory[i].cycles += other.memory[i].cycles;
        memory[i].minimum += other.memory[i].minimum;
    }
    work.insert(work.end(), other.work.begin(), other.work.end());
    for (auto& each : other.traces) traces.push_back(std::move(each));
    footprint.add(other.footprint);
    groups += other.groups;
    waves += other.waves;
}

void begin_group(Tally& tally, Workgroup& group) {
    ++tally.groups;
    tally.waves += group.waves.size();
    const size_t limit = traced_steps(*group.launch, group.linear);
    if (!limit) return;
    tally.traces.push_back(std::make_unique<Trace>());
    Trace& trace = *tally.traces.back();
    trace.group = group.linear;
    trace.limit = limit;
    trace.waves.resize(group.waves.size());
    group.trace = &trace;
}

void end_group(Tally& tally, const Workgroup& group) {
    Work work{group.linear, 0};
    for (const Wave& wave : group.waves) work.executed += wave.executed;
    tally.work.push_back(work);
    if (group.trace) group.trace->executed = work.executed;
}

void on_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (!lanes) return;
    alignas(64) u64 difference[kLanes];
    Patterns& patterns = patterns_of(w, op);
    const u64 first = on_device(patterns, relative(address, lanes, difference)), within = first % kLine;
    const i64 line = static_cast<i64>(first / kLine);
    bool fresh;
    Pattern& pattern = pattern_of(patterns, lanes, bytes, within, difference, fresh);
    if (fresh) {
        u64 lines[2 * kLanes], moved[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) moved[lane] = first + difference[lane];
        pattern.count = lines_touched(moved, lanes, bytes, lines);
        for (int i = 0; i < pattern.count; ++i) pattern.line[i] = static_cast<i64>(lines[i]) - line;
    }
    Way way(w, kind, op.inst.sc1);
    for (int i = 0; i < pattern.count; ++i) way.take(static_cast<u64>(line + pattern.line[i]));
    Memory& place = entry(w, op);
    const u64 asked = u64{bytes} * count(lanes), number = static_cast<u64>(pattern.count);
    place.lanes += count(lanes);
    place.bytes += asked;
    place.lines += number;
    place.beyond += way.beyond;
    trace(w, op, address_cycles(asked, number), way.beyond);
}

void on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (!lanes) return;
    alignas(64) u32 difference[kLanes];
    const u64 within = relative(address, lanes, difference) % kLine;
    bool fresh;
    Pattern& pattern = pattern_of(patterns_of(w, op), lanes, bytes, within, difference, fresh);
    if (fresh) pattern.cost = lds_cost(address, lanes, bytes, kind);
    Memory& place = entry(w, op);
    place.lanes += count(lanes);
    place.bytes += u64{bytes} * count(lanes);
    place.cycles += pattern.cost.cycles;
    place.minimum += pattern.cost.minimum;
    trace(w, op, pattern.cost.cycles, 0);
}

void on_scratch(Wave& w, const Op& op, const u32*, u64 lanes, u32 bytes, AccessKind) {
    // Scratch is interleaved by lane: a dword of all lanes is two lines. How much of it stays in caches is not modelled.
    Memory& place = entry(w, op);
    const u64 asked = u64{bytes} * count(lanes), number = (asked + kLine - 1) / kLine;
    place.lanes += count(lanes);
    place.bytes += asked;
    place.lines += number;
    trace(w, op, address_cycles(asked, number), 0);
}

void on_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind kind) {
    Way way(w, kind, false);
    const u64 moved = on_device(patterns_of(w, op), address), first = moved / kLine, last = (moved + bytes - 1) / kLine;
    for (u64 line = first; line <= last; ++line) way.take(line);
    Memory& place = entry(w, op);
    place.lanes += 1;
    place.bytes += bytes;
    place.lines += last - first + 1;
    place.beyond += way.beyond;
    trace(w, op, 0, way.beyond);
}

}  // namespace emu::counters
