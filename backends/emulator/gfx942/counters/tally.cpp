// SPDX-License-Identifier: MIT
// Counting while a kernel runs: what memory instructions ask for and what it costs them in cache lines and LDS cycles.
//
// An instruction in a loop mostly repeats the addresses of its last execution, shifted; then nothing has to be counted again.
#include <algorithm>
#include <cstring>

#include "core/memory.h"
#include "../ops/access.h"
#include "banks.h"
#include "counters.h"
#include "hierarchy.h"
#include "machine.h"
#include "model.h"
#include "places.h"

namespace emu::counters {

// Addresses of an access, less the first active lane's, and what they cost.
struct Pattern {
    u64 lanes = 0;  // 0: nothing yet
    u32 bytes = 0;
    bool global = false;
    u64 within = 0;                      // where in its line the first lane's access begins
    alignas(64) u64 difference[kLanes];  // LDS: words, in the first half
    BankCost cost{};
    int count = 0;          // of lines
    i64 line[2 * kLanes];   // less the first lane's line
    u8 halves[2 * kLanes];  // of each, that are touched
};

struct Patterns {
    Pattern way[2];  // instructions with two addresses a lane have one each
    int oldest = 0;
    u64 begin = 0, end = 0, shift = 0;  // the host memory that it accessed last, less its place on the device
};

namespace {

using machine::kDies;  // workgroups go to the XCDs in turn

// Requests beyond the L1 that are kept: of a wave that is traced or runs for its beginning, and of all others together.
constexpr u64 kRequestsAWave = 1 << 20, kRequestsALaunch = 8 << 20;
constexpr size_t kBegun = 20'000;  // workgroups of a sampled launch that run for their beginnings

Memory& entry(Wave& w, const Op& op) { return w.group->tally->memory[op.index]; }

u64 count(u64 lanes) { return static_cast<u64>(std::popcount(lanes)); }

Patterns& patterns_of(Wave& w, const Op& op) {
    std::unique_ptr<Patterns>& place = w.group->tally->patterns[op.index];
    if (!place) place = std::make_unique<Patterns>();
    return *place;
}

// Where an address lies on the device (see places.h).
u64 on_device(Patterns& patterns, const Launch& launch, u64 address) {
    if (address < patterns.begin || address >= patterns.end) {
        const Places::Range range = launch.places->of(address);
        patterns.begin = range.begin;
        patterns.end = range.end;
        patterns.shift = range.begin - range.base;
    }
    return address - patterns.shift;
}

// All of an instruction's addresses: the same ones, less a shift, unless they lie in several allocations.
const u64* on_device(Patterns& patterns, const Launch& launch, const u64* address, u64 lanes, u64* moved) {
    on_device(patterns, launch, address[std::countr_zero(lanes)]);
    u64 least = ~u64{0}, most = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const bool active = lanes >> lane & 1;
        least = active ? std::min(least, address[lane]) : least;
        most = active ? std::max(most, address[lane]) : most;
        moved[lane] = address[lane] - patterns.shift;
    }
    if (least >= patterns.begin && most < patterns.end) return moved;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        moved[lane] = on_device(patterns, launch, address[lane]);
    }
    return moved;
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
    Way(Wave& w, const Op& op, AccessKind kind, bool around_l1)
        : tally_(*w.group->tally), record_(*w.group->record), wave_(record_.waves[w.id]),
          operation_(std::min(op.index, kNamedOperations)), die_(static_cast<u32>(w.group->linear % kDies)),
          kind_(kind), around_(around_l1) {}

    void take(u64 line, u64 halves = 3, u64 passes = 1) {
        if (kind_ == AccessKind::Read && !around_ && record_.l1.load(line)) return;
        ++beyond;
        if (wave_.requests.size() < record_.requests) wave_.requests.push_back({line, operation_, halves, passes});
        else wave_.cut = true;
        if (record_.prefix) return;
        if (kind_ != AccessKind::Write) tally_.footprint.mark(line, die_, false);
        if (kind_ != AccessKind::Read) tally_.footprint.mark(line, die_, true);
    }

    u64 beyond = 0;

private:
    Tally& tally_;
    Record& record_;
    WaveRecord& wave_;
    u64 operation_;
    u32 die_;
    AccessKind kind_;
    bool around_;
};

// The step just taken: its costs, and for a workgroup of which only the beginning runs, whether this was it.
void trace(Wave& w, const Op& op, u64 cycles, u64 beyond) {
    Record& record = *w.group->record;
    if (Step* const step = record.steps ? record.last(w.id, op.index) : nullptr) [[unlikely]] {
        step->cycles = static_cast<u16>(std::min<u64>(step->cycles + cycles, 0xffff));
        step->count = static_cast<u16>(std::min<u64>(step->count + beyond, 0xffff));
    }
    if (record.prefix && record.waves[w.id].requests.size() >= (*record.prefix)[w.id]) [[unlikely]] {
        record.waves[w.id].cut = true;
        w.state = Wave::Ended;
    }
}

// A load from global memory to the LDS: MUBUF has a bit for it, GLOBAL instructions of their own.
bool goes_to_lds(const Op& op) {
    return op.inst.lds || (op.inst.row->format == Format::Global && std::strstr(op.inst.row->name, "_lds_"));
}

u8 halves_touched(const u64* address, u64 lanes, u32 bytes, u64 line) {
    constexpr u64 kHalf = kLine / 2;
    u8 touched = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const u64 first = address[std::countr_zero(rest)] / kHalf,
                  last = (address[std::countr_zero(rest)] + bytes - 1) / kHalf;
        for (u64 half = first; half <= last; ++half)
            if (half / 2 == line) touched |= static_cast<u8>(1u << half % 2);
    }
    return touched;
}

// Lanes of an atomic instruction that meet at one word of the line go one after the other.
u64 passes(const u64* address, u64 lanes, u64 line) {
    u64 most = 1;
    u8 words[32] = {};
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const u64 at = address[std::countr_zero(rest)];
        if (at / kLine == line) most = std::max<u64>(most, ++words[at % kLine / 4]);
    }
    return std::min<u64>(most, 63);
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
    for (auto& each : other.records) records.push_back(std::move(each));
    footprint.add(other.footprint);
    groups += other.groups;
    waves += other.waves;
}

void Tally::add_records(Tally&& other) {
    for (auto& each : other.records) records.push_back(std::move(each));
}

void begin_group(Tally& tally, Workgroup& group) {
    const Launch& launch = *group.launch;
    tally.records.push_back(std::make_unique<Record>());
    Record& record = *tally.records.back();
    record.group = group.linear;
    record.waves.resize(group.waves.size());
    group.record = &record;
    const u64 all = launch.grid.volume();
    record.l1 =
        L1(static_cast<u32>(std::min<u64>(occupancy(launch).groups, (all + machine::kUnits - 1) / machine::kUnits)));
    if (tally.prefix && !tally.prefix->empty()) {
        record.prefix = tally.prefix;
        record.requests = kRequestsAWave;
        for (Wave& wave : group.waves)
            if (wave.id >= tally.prefix->size() || !(*tally.prefix)[wave.id]) wave.state = Wave::Ended;
        return;
    }
    ++tally.groups;
    tally.waves += group.waves.size();
    record.steps = traced_steps(launch, group.linear);
    const u64 waves = groups_run(launch) * std::max<size_t>(group.waves.size(), 1);
    record.requests = record.steps ? kRequestsAWave : std::min<u64>(kRequestsAWave, kRequestsALaunch / waves);
}

void end_group(Tally& tally, const Workgroup& group) {
    Work work{group.linear, 0};
    for (const Wave& wave : group.waves) work.executed += wave.executed;
    group.record->executed = work.executed;
    if (!group.record->prefix) tally.work.push_back(work);
}

std::vector<u64> groups_begun(const Launch& launch, const Tally& tally) {
    std::vector<u64> groups;
    if (groups_run(launch) == launch.grid.volume()) return groups;
    std::vector<u64> known;
    known.reserve(tally.records.size());
    for (const auto& record : tally.records) known.push_back(record->group);
    std::sort(known.begin(), known.end());
    const u32 dies = simulated_dies(launch, tally);
    for (u64 group = 0; group < launch.grid.volume() && groups.size() < kBegun; ++group)
        if (group % kDies < dies && !std::binary_search(known.begin(), known.end(), group)) groups.push_back(group);
    return groups;
}

void on_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (!lanes) return;
    alignas(64) u64 difference[kLanes], placed[kLanes];
    Patterns& patterns = patterns_of(w, op);
    address = on_device(patterns, *w.group->launch, address, lanes, placed);
    const u64 first = relative(address, lanes, difference), within = first % kLine;
    const i64 line = static_cast<i64>(first / kLine);
    bool fresh;
    Pattern& pattern = pattern_of(patterns, lanes, bytes, within, difference, fresh);
    if (fresh) {
        u64 lines[2 * kLanes], moved[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) moved[lane] = first + difference[lane];
        pattern.count = blocks_touched<kLine>(moved, lanes, bytes, lines);
        for (int i = 0; i < pattern.count; ++i) {
            pattern.line[i] = static_cast<i64>(lines[i]) - line;
            pattern.halves[i] = halves_touched(moved, lanes, bytes, lines[i]);
        }
    }
    Way way(w, op, kind, op.inst.sc1);
    for (int i = 0; i < pattern.count; ++i) {
        const u64 place = static_cast<u64>(line + pattern.line[i]);
        way.take(place, pattern.halves[i], kind == AccessKind::Atomic ? passes(address, lanes, place) : 1);
    }
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
    const bool direct = goes_to_lds(op);
    if (!direct) {  // else counted where the data comes from
        place.lanes += count(lanes);
        place.bytes += u64{bytes} * count(lanes);
    }
    place.cycles += pattern.cost.cycles;
    place.minimum += pattern.cost.minimum;
    Record& record = *w.group->record;
    if (Step* const step = record.steps ? record.last(w.id, op.index) : nullptr) [[unlikely]] {
        u16& cycles = direct ? step->to_lds : step->cycles;
        cycles = static_cast<u16>(std::min<u64>(cycles + pattern.cost.cycles, 0xffff));
        step->bytes = static_cast<u16>(step->bytes + bytes * count(lanes));
    }
}

void on_scratch(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind) {
    if (!lanes) return;
    // Scratch is interleaved by lane: a dword of all lanes is two lines. The next workgroups use the same memory again.
    constexpr u64 kBegin = 1 << 16;  // no address of the host is so low
    const u64 own = (w.group->launch->scratch_bytes + 3) / 4 * 2,
              wave = w.group->linear % (kDies * 38 * 8) * w.group->waves.size() + w.id;
    const u64 asked = u64{bytes} * count(lanes), number = (asked + kLine - 1) / kLine;
    const u64 first = kBegin + wave * own + offset[std::countr_zero(lanes)] / 4 * 2;
    Way way(w, op, kind, false);
    for (u64 i = 0; i < number; ++i) way.take(first + i);
    Memory& place = entry(w, op);
    place.lanes += count(lanes);
    place.bytes += asked;
    place.lines += number;
    place.beyond += way.beyond;
    trace(w, op, address_cycles(asked, number), way.beyond);
}

void on_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind kind) {
    Way way(w, op, kind, false);
    const u64 moved = on_device(patterns_of(w, op), *w.group->launch, address), first = moved / kLine,
              last = (moved + bytes - 1) / kLine;
    for (u64 line = first; line <= last; ++line) way.take(line);
    Memory& place = entry(w, op);
    place.lanes += 1;
    place.bytes += bytes;
    place.lines += last - first + 1;
    place.beyond += way.beyond;
    trace(w, op, 0, way.beyond);
}

}  // namespace emu::counters
