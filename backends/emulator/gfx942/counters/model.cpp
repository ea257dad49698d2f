// SPDX-License-Identifier: MIT
#include "model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <sstream>
#include <stdexcept>

#include "machine.h"
#include "unit.h"

namespace emu::counters {

namespace machine {
namespace {
Numbers current;
}

const Numbers& numbers() { return current; }

Changed::Changed(const std::string& changes) : before_(current) {
    const std::pair<std::string_view, double Numbers::*> known[] = {
        {"l2_bytes", &Numbers::l2_bytes},
        {"mall_read", &Numbers::mall_read},
        {"mall_write", &Numbers::mall_write},
        {"hbm", &Numbers::hbm},
        {"units_for_memory", &Numbers::units_for_memory},
        {"launch", &Numbers::launch},
        {"lds_latency", &Numbers::lds_latency},
        {"scalar_latency", &Numbers::scalar_latency},
        {"l1_latency", &Numbers::l1_latency},
        {"l2_latency", &Numbers::l2_latency},
        {"mall_latency", &Numbers::mall_latency},
        {"hbm_latency", &Numbers::hbm_latency},
        {"branch_taken", &Numbers::branch_taken},
        {"backlog", &Numbers::backlog}};
    Numbers changed = current;
    std::istringstream words(changes);
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        const auto* const found = std::find_if(
            std::begin(known), std::end(known), [&](const auto& each) { return each.first == word.substr(0, equals); });
        if (equals == std::string::npos || found == std::end(known))
            throw std::invalid_argument("the model has no number '" + word + "'; see counters/machine.h");
        changed.*(found->second) = std::stod(word.substr(equals + 1));
    }
    current = changed;
}

Changed::~Changed() { current = before_; }
}  // namespace machine

namespace {

using namespace machine;

constexpr size_t kSteps = 600'000;   // of all waves of a simulated compute unit: a fraction of a second
constexpr u32 kTraced = 8;           // workgroups
constexpr u64 kScheduled = 500'000;  // workgroups that are scheduled one by one

u64 ceil_div(u64 count, u64 step) { return (count + step - 1) / step; }

// A unit's share of what all use that are busy at the same time. Few of them cannot use all of the memory's rate.
UnitOptions options_for(const Traffic& t, double units, double clock) {
    const Numbers& n = numbers();
    const double share = kLine * std::max(units, n.units_for_memory) * clock;
    UnitOptions options;
    options.clock = clock;
    options.l2_line = std::max(kLine / kL2UnitBytes, kLine * units / n.l2_bytes);
    options.mall_line = share / n.mall_read;
    options.hbm_line = share / n.hbm;
    options.stored_line = t.stored > 0 ? share / n.mall_write * t.written / t.stored : 0;
    return options;
}

// Cycles of a workgroup, with as many others as are resident beside it, by the instructions that it executes.
struct Length {
    double fixed = 0, each = 0;  // `fixed` is below zero where the longer ones wait more
    double operator()(double executed) const { return std::max(0.0, fixed + each * executed); }
};

struct Rounds {
    const Launch& launch;
    const Tally& tally;
    const std::vector<Kind>& kinds;
    const std::vector<const Record*>& traces;
    const Traffic& traffic;
    double clock;

    double cycles(const Record& like, u32 resident, double units) const {
        double traced = 0;
        for (const WaveRecord& wave : like.waves) traced += static_cast<double>(wave.steps.size());
        const UnitTime time = simulate(*launch.program, kinds, {resident, &like}, options_for(traffic, units, clock));
        return time.cycles * (traced > 0 ? static_cast<double>(like.executed) / traced : 1);
    }

    /// From the shortest and the longest traced workgroup, `resident` alike on each of `units` units.
    Length length(u32 resident, double units) const {
        auto less = [](const auto& a, const auto& b) {
            return std::pair{a->executed, a->group} < std::pair{b->executed, b->group};
        };
        const auto [shortest, longest] = std::minmax_element(traces.begin(), traces.end(), less);
        const double few = static_cast<double>((*shortest)->executed), many = static_cast<double>((*longest)->executed);
        constexpr double kAlike = 1.05;
        if (many < kAlike * few) return {0, cycles(**longest, resident, units) / std::max(many, 1.0)};
        const double most = cycles(**longest, resident, units);
        const double least = cycles(**shortest, resident, units), each = std::max(0.0, most - least) / (many - few);
        return {most - each * many, each};
    }
};

double mean_work(const Tally& tally) {
    double sum = 0;
    for (const Work& each : tally.work) sum += static_cast<double>(each.executed);
    return sum / static_cast<double>(std::max<size_t>(tally.work.size(), 1));
}

// Workgroups in order to whichever place becomes free first: how much longer than if all were of mean length.
double imbalance(const Launch& launch, std::vector<Work> work, u64 places, const Length& length) {
    const u64 count = launch.grid.volume();
    if (count > kScheduled || work.size() < 2) return 1;
    std::sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.group < b.group; });
    auto makespan = [&](auto time) {
        std::priority_queue<double, std::vector<double>, std::greater<>> free;
        double last = 0;
        for (u64 group = 0; group < count; ++group) {
            double start = 0;
            if (free.size() >= places) {
                start = free.top();
                free.pop();
            }
            free.push(start + time(group));
            last = std::max(last, start + time(group));
        }
        return last;
    };
    double sum = 0;
    auto measured = [&](u64 group) {
        const u64 sample = group * work.size() / count;
        return length(static_cast<double>(work[sample].executed));
    };
    for (u64 group = 0; group < count; ++group) sum += measured(group);
    const double mean = sum / static_cast<double>(count), even = makespan([&](u64) { return mean; });
    return even > 0 ? std::max(1.0, makespan(measured) / even) : 1;
}

// How a launch fills the chip, in cycles.
struct Filled {
    double cycles = 0;  // until the last workgroup is done
    double even = 0;    // if all units were busy all the time
    double round = 0;   // one unit, as many workgroups as it holds
    double imbalance = 1;
};

Filled fill(const Rounds& rounds) {
    Filled result;
    const u64 groups = rounds.launch.grid.volume(), fit = std::max<u64>(occupancy(rounds.launch).groups, 1),
              places = kUnits * fit;
    const u64 full = groups / places, rest = groups % places;
    const double mean = mean_work(rounds.tally);
    auto length = [&](u64 count) {
        return rounds.length(
            static_cast<u32>(ceil_div(count, kUnits)), static_cast<double>(std::min<u64>(count, kUnits)));
    };
    const Length usual = length(full ? places : groups);
    result.round = usual(mean);
    result.cycles = result.round;
    if (full) {
        const double last = !rest ? 0 : ceil_div(rest, kUnits) == fit ? result.round : length(rest)(mean);
        result.cycles = static_cast<double>(full) * result.round + last;
        result.even = result.round * static_cast<double>(groups) / static_cast<double>(places);
    } else {
        result.even =
            result.round * static_cast<double>(groups) / static_cast<double>(kUnits * ceil_div(groups, kUnits));
    }
    result.imbalance = imbalance(rounds.launch, rounds.tally.work, places, usual);
    result.cycles = std::max(result.cycles * result.imbalance, result.even);
    return result;
}

// Power goes with the part of its cycles that the matrix core is busy, the clock and the square of the voltage, which goes
// with the clock: at constant power the clock goes with the cube root of that part.
double sustained_clock(const Totals& t, double use) {
    double busy = 0, clock = 0;  // seconds at peak rate, and the clock weighted by them
    for (const auto& [type, flops] : t.flops) {
        const Sustained known = sustained(type);
        if (known.clock == 0) continue;
        const double seconds = flops / peak_flops(type);
        busy += seconds;
        clock += seconds * known.clock * std::cbrt(known.use / std::max(use, 1e-6));
    }
    return busy == 0 ? kClock : std::min(kClock, clock / busy);
}

}  // namespace

u64 groups_run(const Launch& launch) {
    const u64 all = launch.grid.volume();
    return launch.sampled ? std::min(launch.sampled, all) : all;
}

u64 group_at(const Launch& launch, u64 index) {
    const u64 all = launch.grid.volume(), run = groups_run(launch);
    if (run == all) return index;
    // One of each of `run` ranges, at no fixed place in it: lengths of workgroups often have a period.
    const u64 begin = index * all / run, width = (index + 1) * all / run - begin;
    return begin + (index * 0x9e3779b97f4a7c15u >> 32) % width;
}

// As backends/_occupancy.py, with the LDS that the launch asks for.
Occupancy occupancy(const Launch& launch) {
    const u32 waves = static_cast<u32>(ceil_div(launch.block.volume(), kLanes));
    const u32 registers = ((launch.kernel->rsrc1 & 63) + 1) * kVectorGranule;
    const u32 by_registers = kVectorRegisters / registers;
    const u32 most = kWavesPerSimd - (launch.kernel->sgprs > kScalarLimit ? 1 : 0);
    Occupancy result;
    result.waves_per_group = waves;
    result.limit = by_registers < most ? "registers" : "waves";
    result.groups = std::min(by_registers, most) * kSimds / waves;
    auto limit = [&](u32 groups, const char* what) {
        if (groups >= result.groups) return;
        result.groups = groups;
        result.limit = what;
    };
    if (waves > 1) limit(kGroupsPerUnit, "groups");
    if (launch.lds_bytes) limit(kLdsBytes / round_up(launch.lds_bytes, kLdsGranule), "lds");
    result.waves_per_simd = double(result.groups) * waves / kSimds;
    return result;
}

size_t traced_steps(const Launch& launch, u64 group) {
    const Occupancy fits = occupancy(launch);
    const u64 run = groups_run(launch), resident = std::max<u64>(fits.groups, 1);
    // Multiples of the golden section: far apart, and in step with no period that the lengths of workgroups may have.
    constexpr double kSection = 0.61803398874989485;
    for (u32 i = 1; i <= kTraced; ++i) {
        const double place = i * kSection - std::floor(i * kSection);
        const u64 index = std::min(run - 1, static_cast<u64>(place * static_cast<double>(run)));
        if (group == group_at(launch, index)) return kSteps / (resident * fits.waves_per_group);
    }
    return 0;
}

u64 address_cycles(u64 bytes, u64 lines) {
    constexpr u64 kLeast = 4;  // 64 addresses, 16 a cycle
    return std::max({kLeast, lines, ceil_div(bytes, static_cast<u64>(kL1Bytes))});
}

Totals totals(const Launch& launch, const Tally& tally, const std::vector<Kind>& kinds) {
    Totals t;
    t.scale = static_cast<double>(launch.grid.volume()) / static_cast<double>(std::max<u64>(tally.groups, 1));
    for (size_t i = 0; i < kinds.size(); ++i) {
        const double executed = t.scale * static_cast<double>(tally.executed[i]);
        if (executed == 0) continue;
        const Kind& kind = kinds[i];
        const Memory& memory = tally.memory[i];
        t.classes[static_cast<int>(kind.klass)] += executed;
        if (kind.flops)
            t.flops[matrix_type(*launch.program->ops[i].inst.row)] += executed * static_cast<double>(kind.flops);
        if (kind.unit == Unit::None) continue;
        double& cycles = t.cycles[static_cast<int>(kind.unit)];
        if (kind.unit == Unit::Lds) {
            // Instructions that move data across lanes name no addresses: 256 bytes, two cycles.
            const u64 across = memory.lanes ? 0 : 2 * tally.executed[i];
            cycles += t.scale * static_cast<double>(memory.cycles + across);
            t.lds_minimum += t.scale * static_cast<double>(memory.minimum + across);
            t.lds_bytes += t.scale * static_cast<double>(memory.bytes);
        } else if (kind.unit == Unit::Vmem) {
            t.cycles[static_cast<int>(Unit::Lds)] += t.scale * static_cast<double>(memory.cycles);  // loads to the LDS
            t.lds_minimum += t.scale * static_cast<double>(memory.minimum);
            const double least = 4 * executed, lines = static_cast<double>(memory.lines),
                         bytes = static_cast<double>(memory.bytes);
            cycles += std::max({least, t.scale * lines, t.scale * bytes / kL1Bytes});
        } else {
            cycles += executed * kind.cycles;
        }
        if (kind.unit == Unit::Vmem || kind.unit == Unit::Smem) {
            t.bytes += t.scale * static_cast<double>(memory.bytes);
            t.lines += t.scale * static_cast<double>(memory.lines);
            t.beyond += t.scale * static_cast<double>(memory.beyond);
        }
    }
    t.footprint = extrapolate(tally.footprint, *launch.places, t.scale);
    return t;
}

Modelled model(
    const Launch& launch, const Tally& tally, const std::vector<Kind>& kinds, const Totals& t, const Traffic& traffic) {
    const Numbers& n = numbers();
    Modelled m;
    std::vector<const Record*> traces;
    for (const auto& record : tally.records)
        if (record->steps && record->executed) traces.push_back(record.get());
    std::sort(traces.begin(), traces.end(), [](const Record* a, const Record* b) { return a->group < b->group; });
    const double matrix = t.cycles[static_cast<int>(Unit::Matrix)] / (kUnits * kSimds);
    // Memory on other dies keeps its time when the clock falls, so the use of the matrix cores depends on the clock.
    Filled filled;
    m.clock = kClock;
    for (int round = 0; round < 2; ++round) {
        if (!traces.empty()) filled = fill({launch, tally, kinds, traces, traffic, m.clock});
        const double cycles = std::max(filled.cycles, matrix);
        const double clock = cycles > 0 ? sustained_clock(t, matrix / cycles) : kClock;
        constexpr double kAlike = 0.02;
        if (std::abs(clock - m.clock) < kAlike * m.clock) break;
        m.clock = round ? (m.clock + clock) / 2 : clock;
    }

    auto us = [&](double count) { return count / m.clock * 1e6; };
    auto unit = [&](Unit which) { return us(t.cycles[static_cast<int>(which)] / kUnits); };
    m.launch = n.launch * 1e6;
    m.mfma = unit(Unit::Matrix) / kSimds;
    m.valu = unit(Unit::Valu) / kSimds;
    m.salu = unit(Unit::Salu) / kSimds;
    m.lds = unit(Unit::Lds);
    m.vmem = unit(Unit::Vmem);
    m.l2 = us(traffic.l2 * kLine / n.l2_bytes);
    const double beyond = traffic.loaded[static_cast<int>(Level::Mall)] + traffic.loaded[static_cast<int>(Level::Hbm)];
    m.mall = (beyond / n.mall_read + traffic.written / n.mall_write) * kLine * 1e6;
    m.hbm = (traffic.loaded[static_cast<int>(Level::Hbm)] + traffic.evicted) * kLine / n.hbm * 1e6;
    m.atomics = us(traffic.atomics);

    const std::pair<double, const char*> most = std::max(
        {std::pair{m.mfma, "mfma"},
         {m.valu, "valu"},
         {m.salu, "salu"},
         {m.lds, "lds"},
         {m.vmem, "vmem"},
         {m.l2, "l2"},
         {m.mall, "mall"},
         {m.hbm, "hbm"},
         {m.atomics, "atomics"}});
    m.unit_cycles = filled.round;
    m.imbalance = filled.imbalance;
    m.compute_units = us(filled.cycles);
    m.tail = us(filled.cycles - filled.even);
    m.latency = std::max(0.0, us(filled.even) - most.first);
    m.total = m.launch + std::max(m.compute_units, most.first);
    m.band = t.flops.empty() ? kBandMoves : launch.grid.volume() < kUnits ? kBandIdle : kBandProducts;
    m.limit = m.tail > std::max(most.first, m.latency) ? "tail" : m.latency > most.first ? "latency" : most.second;
    return m;
}

Modelled model_move(const void* from, const void* to, size_t bytes) {
    const Numbers& n = numbers();
    const Moved moved = move_through_cache(from, to, bytes);
    const double size = static_cast<double>(bytes);
    Modelled m;
    m.clock = kClock;
    m.launch = n.launch * 1e6;
    m.mall = (size / n.mall_write + (from ? size / n.mall_read : 0)) * 1e6;
    m.hbm = (moved.loaded + moved.evicted) * kLine / n.hbm * 1e6;
    m.total = m.launch + std::max(m.mall, m.hbm);
    m.band = kBandMoves;
    m.limit = m.mall > m.hbm ? "mall" : "hbm";
    return m;
}

}  // namespace emu::counters
