// SPDX-License-Identifier: MIT
#include "plan.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "merged.h"

namespace emu::checks {
namespace {

bool begins(const Op& op, std::string_view prefix) {
    return std::string_view(op.inst.row->name).substr(0, prefix.size()) == prefix;
}
bool is(const Op& op, std::string_view name) { return op.inst.row->name == name; }
bool contains(const Op& op, std::string_view part) {
    return std::string_view(op.inst.row->name).find(part) != std::string_view::npos;
}

// ISA guide, "S_WAITCNT": VM_CNT in bits 3:0 and 15:14, LGKM_CNT in 11:8; all ones of a field: no wait.
void decode_wait(const Op& op, Facts& facts) {
    constexpr u8 kVmMost = 63, kLgkmMost = 15;
    const u32 bits = static_cast<u32>(op.inst.simm);
    const u8 vm = static_cast<u8>((bits & 15) | (bits >> 14 & 3) << 4), lgkm = bits >> 8 & 15;
    facts.what |= kWaits;
    if (vm < kVmMost) facts.wait_vm = vm;
    if (lgkm < kLgkmMost) facts.wait_lgkm = lgkm;
}

// Which counters an instruction increments: ISA guide, "Data dependency resolution"; a FLAT instruction increments both, and
// which of them comes first is not known. buffer_inv has no counter (LLVM's SIInsertWaitcnts says so, too). Atomics by themselves
// order nothing: compilers put buffer_wbl2 before one that releases and buffer_inv behind one that acquires.
u16 memory_facts(const Op& op) {
    const u32 flags = op.inst.row->flags;
    u16 what = kMemoryOp;
    if (flags & (kStore | kAtomic)) what |= kOutward;
    if (contains(op, "wrxchg") || contains(op, "atomic_swap")) what |= kExchanges;
    switch (op.inst.row->format) {
        case Format::Ds: return is(op, "ds_nop") ? 0 : what | kCountsLgkm;
        case Format::Flat: what |= kCountsVm | kCountsLgkm | kAnyOrder; break;
        case Format::Scratch: what = static_cast<u16>((what | kCountsVm) & ~kOutward); break;
        default:
            if (is(op, "buffer_inv")) return kAcquires;
            if (is(op, "buffer_wbl2")) return kCountsVm | kReleases;
            what |= kCountsVm;
    }
    if (contains(op, "cmpswap")) what |= kCompares;
    if (op.inst.lds || contains(op, "load_lds")) what |= kLdsDma;
    return what;
}

Facts facts_of(const Op& op) {
    Facts facts;
    if (!op.inst.row) return facts;
    const Format format = op.inst.row->format;
    if (format == Format::Smem) {
        facts.what = kMemoryOp | kCountsLgkm | kAnyOrder;
        if (op.inst.row->flags & (kStore | kAtomic)) facts.what |= kOutward;
    } else if (format >= Format::Ds) {
        facts.what = memory_facts(op);
    } else if (is(op, "s_waitcnt")) {
        decode_wait(op, facts);
    } else if (is(op, "s_barrier")) {
        facts.what = kBarrierOp;
    } else if (begins(op, "s_sendmsg")) {
        facts.what = kCountsLgkm | kAnyOrder;
    } else if (begins(op, "v_div_fmas") || begins(op, "s_cbranch_vcc")) {
        facts.what = kReadsVcc;
    } else if (begins(op, "v_cmpx") || contains(op, "saveexec") || contains(op, "wrexec")) {
        facts.what = kWritesExec;
    }
    facts.hazard = hazard_classes(op);
    return facts;
}

// FLAT instructions reach LDS, too.
u32 grain_of(const Op& op) {
    if (!op.inst.row || (op.inst.row->format != Format::Ds && op.inst.row->format != Format::Flat)) return 4;
    if (contains(op, "_b8") || contains(op, "byte") || contains(op, "_u8") || contains(op, "_i8")) return 1;
    if (contains(op, "_b16") || contains(op, "short") || contains(op, "_u16") || contains(op, "_i16")) return 2;
    return 4;
}

}  // namespace

const Plan& plan_of(const Program& program) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (!program.plan) {
        auto plan = std::make_shared<Plan>(program.ops.size());
        for (const Op& op : program.ops) {
            plan->facts.push_back(facts_of(op));
            plan->flows.push_back(definedness::flow_of(op, std::max(program.vgprs, 1u)));
            if (plan->facts.back().what & kMemoryOp && moves_pieces(program.ops, op.index))
                plan->facts.back().what |= kPieces;
            plan->lds_grain = std::min(plan->lds_grain, grain_of(op));
        }
        program.plan = plan;
    }
    return *program.plan;
}

}  // namespace emu::checks
