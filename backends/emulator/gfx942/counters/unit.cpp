// SPDX-License-Identifier: MIT
// Each wave issues in order. An instruction goes when its wave has come to it, what it waits for is there, and its unit is
// free; among waves the one that could go first goes first, then the one of higher priority. Not modelled: register banks.
#include "unit.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

#include "machine.h"

namespace emu::counters {
namespace {

using namespace machine;

constexpr double kTurn = 4;               // a SIMD's scheduler comes round every four cycles
constexpr double kForwarded = 3 * kTurn;  // a matrix result within the matrix core is that much earlier there
constexpr unsigned kVmMost = 63, kLgkmMost = 15;

constexpr double kPort = 64;       // bytes a cycle each way between two SIMDs and the LDS
constexpr double kPrefetched = 4;  // instruction lines that are fetched ahead of straight code

struct Runner {
    const WaveRecord* wave = nullptr;
    size_t at = 0;
    u32 group = 0, simd = 0, priority = 0;
    u32 line = ~u32{0};                  // of instructions, that it is in
    double ready = 0;                    // the next instruction may issue
    bool waiting = false;                // at a barrier
    std::deque<double> vm, lgkm;         // when what is under way will be there; vm in order
    std::vector<double> matrix, vector;  // by register: when a matrix or other vector instruction's result is there
};

struct Group {
    u32 running = 0, arrived = 0;
    double last = 0;  // arrival
};

class ComputeUnit {
public:
    ComputeUnit(const Program&, const std::vector<Kind>&, const std::vector<const Record*>&, const UnitOptions&);
    UnitTime run();

private:
    double earliest(Runner&, const Op&, const Kind&);
    void issue(Runner&, const Op&, const Kind&, const Step&, double now);
    void memory(Runner&, const Op&, const Kind&, const Step&, double now);
    void pass_barrier(Group&);
    double fetched(Runner&, const Op&, double when);
    bool finished(const Runner& r) const { return r.at == r.wave->steps.size(); }
    void push(u32 index) { queue_.push({runners_[index].ready, 3 - runners_[index].priority, index}); }
    double& busy(Unit unit) { return time_.busy[static_cast<int>(unit)]; }

    using Event = std::tuple<double, u32, u32>;  // time, rank among waves that could go then, wave
    const Program& program_;
    const std::vector<Kind>& kinds_;
    UnitOptions options_;
    std::vector<Runner> runners_;
    std::vector<Group> groups_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
    double vector_free_[kSimds] = {}, matrix_free_[kSimds] = {}, scalar_free_[kSimds] = {};
    double vector_busy_[kSimds] = {}, matrix_busy_[kSimds] = {};
    double issued_[kSimds][static_cast<int>(Unit::None) + 1] = {};  // next turn of a SIMD for a kind of instruction
    double lds_free_ = 0, address_free_ = 0, to_lds_[kSimds / 2] = {}, from_lds_[kSimds / 2] = {};
    double l2_free_ = 0, mall_free_ = 0, hbm_free_ = 0, stored_free_ = 0;
    std::vector<double> instructions_;  // by line: when it is in the cache; 0: it is not
    std::deque<u32> fetched_;           // lines in the cache, oldest first
    const Numbers& n_ = numbers();
    UnitTime time_;
};

ComputeUnit::ComputeUnit(
    const Program& program, const std::vector<Kind>& kinds, const std::vector<const Record*>& groups,
    const UnitOptions& options)
    : program_(program), kinds_(kinds), options_(options), groups_(groups.size()) {
    instructions_.assign(program.bytes / kInstructionLine + 2, 0);
    for (u32 g = 0; g < groups.size(); ++g) {
        for (const WaveRecord& wave : groups[g]->waves) {
            Runner runner;
            runner.wave = &wave;
            runner.group = g;
            runner.simd = static_cast<u32>(runners_.size()) % kSimds;
            runner.matrix.assign(program.vgprs + 1, 0);
            runner.vector.assign(program.vgprs + 1, 0);
            if (!wave.steps.empty()) {
                ++groups_[g].running;
                runners_.push_back(std::move(runner));
            }
        }
    }
}

template <class Each>
void each_register(const Registers& registers, const std::vector<double>& file, Each each) {
    if (registers.file != Registers::Vector) return;
    const u32 end = std::min<u32>(registers.first + registers.count, static_cast<u32>(file.size()));
    for (u32 i = registers.first; i < end; ++i) each(i);
}

// Results of matrix instructions are there after all passes; other units than the matrix core see them three passes later
// (LLVM's hazard recogniser, gfx940: wait states after XDL writes).
double ready_registers(const Runner& r, const Op& op, Unit unit) {
    double when = 0;
    auto look = [&](u32 i) {
        when = std::max({when, r.matrix[i] - (unit == Unit::Matrix ? kForwarded : 0), r.vector[i]});
    };
    for (int i = 0; i < op.read_count; ++i) each_register(op.reads[i], r.matrix, look);
    for (int i = 0; i < op.write_count; ++i) each_register(op.writes[i], r.matrix, look);
    return when;
}

// Straight code is fetched ahead; the target of a jump is not.
double ComputeUnit::fetched(Runner& r, const Op& op, double when) {
    const u32 line = op.pc / kInstructionLine;
    if (line == r.line) return when;
    double& there = instructions_[line];
    if (there == 0) {
        there = when + n_.l2_latency / (line == r.line + 1 ? kPrefetched : 1);
        fetched_.push_back(line);
        if (fetched_.size() > kInstructionBytes / kInstructionLine) {
            instructions_[fetched_.front()] = 0;
            fetched_.pop_front();
        }
    }
    r.line = line;
    return std::max(when, there);
}

double ComputeUnit::earliest(Runner& r, const Op& op, const Kind& kind) {
    double when = r.ready = fetched(r, op, r.ready);
    // A SIMD issues one instruction of a kind in its turn; scalar arithmetic and loads are one kind, VALU and matrix another.
    when = std::max(when, issued_[r.simd][static_cast<int>(kind.unit == Unit::Smem ? Unit::Salu : kind.unit)]);
    if (kind.unit == Unit::Valu || kind.unit == Unit::Matrix || kind.unit == Unit::Lds || kind.unit == Unit::Vmem)
        when = std::max(when, ready_registers(r, op, kind.unit));
    switch (kind.unit) {
        case Unit::Valu: return std::max(when, vector_free_[r.simd]);
        case Unit::Matrix: return std::max({when, vector_free_[r.simd], matrix_free_[r.simd]});
        case Unit::Salu: return std::max(when, scalar_free_[r.simd]);
        case Unit::Lds:
            return std::max(
                {when, lds_free_ - n_.backlog, from_lds_[r.simd / 2] - n_.backlog, to_lds_[r.simd / 2] - n_.backlog});
        case Unit::Vmem: return std::max({when, address_free_ - n_.backlog, r.vm.size() > kVmMost ? r.vm.front() : 0});
        default: break;
    }
    if (kind.klass != Class::Waitcnt || op.inst.row->opcode != 12) return when;
    const auto simm = static_cast<u32>(op.inst.simm);
    const unsigned vm = (simm & 15) | (simm >> 14 & 3) << 4, lgkm = simm >> 8 & 15;
    for (; vm < kVmMost && r.vm.size() > vm; r.vm.pop_front()) when = std::max(when, r.vm.front());
    for (; lgkm < kLgkmMost && r.lgkm.size() > lgkm; r.lgkm.pop_front()) when = std::max(when, r.lgkm.front());
    return r.ready = when;
}

void ComputeUnit::memory(Runner& r, const Op& op, const Kind& kind, const Step& step, double now) {
    const u32 port = r.simd / 2;
    if (kind.unit == Unit::Lds) {
        const double cycles = std::max<double>(step.cycles, 2);  // across lanes without addresses: 256 bytes
        const bool store = op.inst.row->flags & kStore;
        const double bytes = step.bytes ? step.bytes : 4 * kLanes;
        // Addresses, and what is stored, go through the port to the LDS; what is loaded comes back through the other.
        to_lds_[port] = std::max(to_lds_[port], now) + (4 * kLanes + (store ? bytes : 0)) / kPort;
        lds_free_ = std::max({lds_free_ + cycles, to_lds_[port], now + cycles});
        busy(Unit::Lds) += cycles;
        if (!store) from_lds_[port] = std::max(from_lds_[port] + bytes / kPort, lds_free_);
        r.lgkm.push_back((store ? lds_free_ : from_lds_[port]) + n_.lds_latency);
        return;
    }
    double done = now;
    if (kind.unit == Unit::Vmem) {
        const double cycles = std::max<double>(step.cycles, kTurn);
        address_free_ = std::max(address_free_, now) + cycles;
        busy(Unit::Vmem) += cycles;
        done = address_free_;
    }
    if (step.count) {
        double lines[3] = {};
        const std::vector<u8>& levels = r.wave->levels;
        for (u32 i = 0; i < step.count; ++i) ++lines[step.requests + i < levels.size() ? levels[step.requests + i] : 0];
        const double from_mall = lines[1] + lines[2];
        double there = l2_free_ = std::max(l2_free_, done) + step.count * options_.l2_line;
        if (kind.klass == Class::Store) {
            there = stored_free_ = std::max(stored_free_, done) + step.count * options_.stored_line;
        } else if (from_mall > 0) {
            mall_free_ = std::max(mall_free_, done) + from_mall * options_.mall_line;
            hbm_free_ = std::max(hbm_free_, done) + lines[2] * options_.hbm_line;
            there = std::max({there, mall_free_, hbm_free_});
        }
        const double latency = lines[2] > 0   ? n_.hbm_latency * options_.clock
                               : lines[1] > 0 ? n_.mall_latency * options_.clock
                                              : n_.l2_latency;
        done = std::max(there, done + latency);
    } else {
        done += kind.unit == Unit::Smem ? n_.scalar_latency : n_.l1_latency;
    }
    if (step.to_lds) {
        lds_free_ = std::max(lds_free_, now) + step.to_lds;
        busy(Unit::Lds) += step.to_lds;
    }
    if (kind.unit == Unit::Smem || op.inst.row->format == Format::Flat) r.lgkm.push_back(done);
    if (kind.unit == Unit::Vmem) r.vm.push_back(r.vm.empty() ? done : std::max(done, r.vm.back()));
}

void ComputeUnit::issue(Runner& r, const Op& op, const Kind& kind, const Step& step, double now) {
    r.ready = now + kTurn;
    issued_[r.simd][static_cast<int>(kind.unit == Unit::Smem ? Unit::Salu : kind.unit)] =
        kind.unit == Unit::None ? 0 : now + kTurn;
    switch (kind.unit) {
        case Unit::Valu:
            vector_free_[r.simd] = now + kind.cycles;
            vector_busy_[r.simd] += kind.cycles;
            for (int i = 0; i < op.write_count && kind.cycles > kTurn; ++i)
                each_register(op.writes[i], r.vector, [&](u32 k) { r.vector[k] = now + kind.cycles; });
            break;
        case Unit::Matrix:
            vector_free_[r.simd] = now + kTurn;
            matrix_free_[r.simd] = now + kind.cycles;
            matrix_busy_[r.simd] += kind.cycles;
            for (int i = 0; i < op.write_count; ++i)
                each_register(op.writes[i], r.matrix, [&](u32 k) { r.matrix[k] = now + kind.cycles + kForwarded; });
            break;
        case Unit::Salu:
            scalar_free_[r.simd] = now + kTurn;
            busy(Unit::Salu) += kTurn / kSimds;
            break;
        case Unit::Lds:
        case Unit::Vmem:
        case Unit::Smem: memory(r, op, kind, step, now); break;
        case Unit::None:
            if (kind.klass == Class::Nop) r.ready = now + kTurn * (static_cast<u32>(op.inst.simm & 15) + 1);
            if (kind.klass == Class::Priority) r.priority = static_cast<u32>(op.inst.simm & 3);
            if (kind.klass == Class::Branch && r.at + 1 < r.wave->steps.size() &&
                r.wave->steps[r.at + 1].operation != step.operation + 1)
                r.ready = now + n_.branch_taken;
            break;
    }
}

void ComputeUnit::pass_barrier(Group& group) {
    const u32 index = static_cast<u32>(&group - groups_.data());
    for (u32 i = 0; i < runners_.size(); ++i) {
        Runner& r = runners_[i];
        if (r.group != index || !r.waiting) continue;
        r.waiting = false;
        r.ready = group.last + kTurn;
        push(i);
    }
    group.arrived = 0;
    group.last = 0;
}

UnitTime ComputeUnit::run() {
    for (u32 i = 0; i < runners_.size(); ++i) push(i);
    while (!queue_.empty()) {
        const auto [when, rank, index] = queue_.top();
        queue_.pop();
        Runner& r = runners_[index];
        Group& group = groups_[r.group];
        const Step& step = r.wave->steps[r.at];
        const Op& op = program_.ops[step.operation];
        const Kind& kind = kinds_[step.operation];
        const double now = earliest(r, op, kind);
        if (now > when && !queue_.empty() && std::get<0>(queue_.top()) < now) {
            queue_.push({now, rank, index});  // others may go before it
            continue;
        }
        issue(r, op, kind, step, now);
        time_.cycles = std::max(time_.cycles, r.ready);
        ++r.at;
        if (finished(r)) {
            // Stores need not be waited for by the wave, but the workgroup's place is free only after them.
            if (!r.vm.empty()) time_.cycles = std::max(time_.cycles, r.vm.back());
            --group.running;
        } else if (kind.klass == Class::Barrier) {
            r.waiting = true;
            ++group.arrived;
            group.last = std::max(group.last, now);
        } else {
            push(index);
        }
        if (group.arrived && group.arrived >= group.running) pass_barrier(group);
    }
    busy(Unit::Valu) = *std::max_element(vector_busy_, vector_busy_ + kSimds);
    busy(Unit::Matrix) = *std::max_element(matrix_busy_, matrix_busy_ + kSimds);
    return time_;
}

}  // namespace

UnitTime simulate(
    const Program& program, const std::vector<Kind>& kinds, const std::vector<const Record*>& groups,
    const UnitOptions& options) {
    return ComputeUnit(program, kinds, groups, options).run();
}

}  // namespace emu::counters
