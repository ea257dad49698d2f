// SPDX-License-Identifier: MIT
// Definedness, lane by lane: true for what was written, false for what was not, and the conjunction of its sources for what
// was computed. Whole registers and lanes, not bits: half of a register counts for all of it.
#include "uninitialised.h"

#include <algorithm>
#include <cstring>

#include "shadow.h"

namespace emu::checks {
namespace {

constexpr u32 kPoison = 0xffc0dead;             // what run.cpp leaves in registers that the hardware does not set

bool begins(const Op& op, const char* prefix) { return !std::strncmp(op.inst.row->name, prefix, std::strlen(prefix)); }

bool is_memory(Format format) { return format >= Format::Ds; }

struct Defined {
    u64 lanes = kAllLanes;
    u32 origin = 0;

    void meet(u64 other, u32 from) {
        if (~other & lanes && !origin) origin = from;
        lanes &= other;
    }
};

void meet(Defined& result, const UninitialisedWave& state, const Operand& operand) {
    if (operand.kind == Operand::Vector) {
        for (unsigned i = 0; i < operand.dwords; ++i)
            result.meet(state.vgpr[operand.index + i], state.origin[operand.index + i]);
    } else if (operand.kind == Operand::Scalar) {
        for (unsigned i = 0; i < operand.dwords && operand.index + i < 128u; ++i)
            if (!state.sgpr[operand.index + i]) result.meet(0, state.sgpr_origin[operand.index + i]);
    } else if (operand.kind == Operand::Special && operand.index == kScc && !state.scc) {
        result.meet(0, 0);
    }
}

void define(UninitialisedWave& state, const Operand& operand, u64 lanes, const Defined& value) {
    if (operand.kind == Operand::Vector) {
        for (unsigned i = 0; i < operand.dwords; ++i) {
            u64& place = state.vgpr[operand.index + i];
            place = (place & ~lanes) | (value.lanes & lanes);
            if (~place) state.origin[operand.index + i] = value.origin;
        }
    } else if (operand.kind == Operand::Scalar) {
        for (unsigned i = 0; i < operand.dwords && operand.index + i < 128u; ++i) {
            state.sgpr[operand.index + i] = (value.lanes & lanes) == lanes;
            state.sgpr_origin[operand.index + i] = value.origin;
        }
    }
}

std::string source_of(const Wave& w, u32 origin) {
    if (!origin) return "a register that nothing was written to";
    return "read from LDS that nobody had written, at " + where(*w.group->launch, origin - 1);
}

void complain(Wave& w, const Op& op, const Defined& value, u64 lanes, const std::string& use) {
    const u64 wrong = ~value.lanes & lanes;
    if (!wrong) return;
    const bool whole_wave = wrong == kAllLanes;
    report(w, op, kUninitialised, whole_wave ? -1 : std::countr_zero(wrong),
           use + " is undefined" + (whole_wave ? "" : "; " + std::to_string(std::popcount(wrong)) + " lanes"), "",
           "the value: " + source_of(w, value.origin));
}

// --- matrix instructions: a row of D depends on a row of A, a column on a column of B -------------------------------

u64 undefined_groups(u64 defined, int size) {
    u64 groups = 0;
    for (int lane = 0; lane < kLanes; ++lane)
        if (!(defined >> lane & 1)) groups |= u64{1} << (lane % size);
    return groups;
}

void matrix(UninitialisedWave& state, const Op& op) {
    Defined a, b;
    meet(a, state, op.src[0]);
    meet(b, state, op.src[1]);
    const int size = op.dst.dwords == 4 ? 16 : op.dst.dwords == 16 ? 32 : 0;
    const u64 rows = undefined_groups(a.lanes, size ? size : 1), columns = undefined_groups(b.lanes, size ? size : 1);
    const u32 origin = a.origin ? a.origin : b.origin;
    for (unsigned i = 0; i < op.dst.dwords; ++i) {
        Defined value;
        value.origin = origin;
        if (op.src[2].kind == Operand::Vector && op.src[2].dwords == op.dst.dwords)
            value.meet(state.vgpr[op.src[2].index + i], state.origin[op.src[2].index + i]);
        if (rows | columns) {
            for (int lane = 0; lane < kLanes; ++lane) {
                const int row = size == 16 ? 4 * (lane / 16) + static_cast<int>(i)
                                           : size == 32 ? 8 * static_cast<int>(i / 4) + 4 * (lane / 32) + static_cast<int>(i % 4) : 0;
                if ((rows >> row & 1) || (columns >> (size ? lane % size : 0) & 1)) value.lanes &= ~(u64{1} << lane);
            }
        }
        Operand part = op.dst;
        part.index = static_cast<u16>(op.dst.index + i);
        part.dwords = 1;
        define(state, part, kAllLanes, value);
    }
}

// --- vector arithmetic ----------------------------------------------------------------------------------------------

bool cross_lane(const Op& op) { return op.inst.dpp || begins(op, "ds_swizzle") || begins(op, "ds_bpermute") || begins(op, "ds_permute"); }

// x ^ x and x - x are defined whatever x is.
bool cancels(const Op& op) {
    if (op.src[0].kind != Operand::Vector || op.src[1].kind != Operand::Vector || op.src[0].index != op.src[1].index) return false;
    return begins(op, "v_xor_b32") || begins(op, "v_sub_u32") || begins(op, "v_sub_co_u32");
}

Defined vector_value(Wave& w, const Op& op) {
    UninitialisedWave& state = w.shadow->uninitialised;
    Defined value;
    if (cancels(op)) return value;
    if (begins(op, "v_cndmask_b32")) {
        Defined no, yes, mask;
        meet(no, state, op.src[0]);
        meet(yes, state, op.src[1]);
        meet(mask, state, op.src[2]);
        const u64 chosen = scalar64(w, op.src[2]);
        value.meet((chosen & yes.lanes) | (~chosen & no.lanes), yes.origin ? yes.origin : no.origin);
        value.meet(mask.lanes, mask.origin);
        return value;
    }
    for (const Operand& operand : op.src) meet(value, state, operand);
    // Where lanes come from is not followed; a register that is defined in part is taken as defined.
    if (op.inst.dpp && value.lanes & w.exec()) value.lanes = kAllLanes;
    return value;
}

void vector_after(Wave& w, const Op& op, const Defined& value) {
    UninitialisedWave& state = w.shadow->uninitialised;
    const u64 exec = w.exec();
    define(state, op.dst, exec, value);
    if (op.sdst.kind != Operand::Absent) define(state, op.sdst, exec, value);
}

void scalar_after(UninitialisedWave& state, const Op& op) {
    Defined value;
    for (const Operand& operand : op.src) meet(value, state, operand);
    if (begins(op, "s_cselect") || begins(op, "s_cmov") || begins(op, "s_addc") || begins(op, "s_subb"))
        if (!state.scc) value.meet(0, 0);
    if (begins(op, "s_getpc") || begins(op, "s_getreg") || begins(op, "s_mem")) value = {};
    if (begins(op, "s_xor") && op.src[0].kind == Operand::Scalar && op.src[0].index == op.src[1].index) value = {};
    define(state, op.dst, kAllLanes, value);
    if (!begins(op, "s_mov") && !begins(op, "s_cselect")) state.scc = value.lanes == kAllLanes;
}

}  // namespace

void begin(UninitialisedGroup& state, const Workgroup& group) { state.lds.assign(group.lds_bytes, 0); }

void begin(UninitialisedWave& state, const Wave& wave) {
    state.vgpr.assign(wave.vgpr_count, 0);
    state.origin.assign(wave.vgpr_count, 0);
    if (wave.vgpr_count) state.vgpr[0] = kAllLanes;
    for (unsigned i = 0; i < 128; ++i) state.sgpr[i] = wave.sgpr[i] != kPoison;
    state.sgpr[kVcc] = state.sgpr[kVcc + 1] = false;
}

namespace uninitialised {

void before(Wave& w, const Op& op) {
    if (!op.inst.row) return;
    UninitialisedWave& state = w.shadow->uninitialised;
    const Format format = op.inst.row->format;
    if (is_memory(format) || format == Format::Smem) {
        state.lds_undefined = 0;
        const u64 lanes = format == Format::Smem ? kAllLanes : w.exec();
        if (!lanes) return;
        Defined address;
        for (const Operand* operand : {&op.vaddr, &op.saddr, &op.soffset}) meet(address, state, *operand);
        complain(w, op, address, lanes, "the address");
        if (format == Format::Ds) return;
        Defined data;
        meet(data, state, op.vdata);
        complain(w, op, data, lanes, "what is stored to memory");
        return;
    }
    if (format != Format::Sopp) return;
    Defined value;
    if (begins(op, "s_cbranch_scc") && !state.scc) value.meet(0, 0);
    if (begins(op, "s_cbranch_vcc"))
        for (const unsigned half : {0u, 1u})
            if (!state.sgpr[kVcc + half]) value.meet(0, state.sgpr_origin[kVcc + half]);
    if (begins(op, "s_cbranch_exec"))
        for (const unsigned half : {0u, 1u})
            if (!state.sgpr[kExec + half]) value.meet(0, state.sgpr_origin[kExec + half]);
    complain(w, op, value, kAllLanes, "what the branch depends on");
}

void after(Wave& w, const Op& op) {
    if (!op.inst.row) return;
    UninitialisedWave& state = w.shadow->uninitialised;
    const Format format = op.inst.row->format;
    switch (format) {
        case Format::Sop1: case Format::Sop2: case Format::Sopk: case Format::Sopc: scalar_after(state, op); return;
        case Format::Sopp: return;
        case Format::Smem: define(state, op.dst, kAllLanes, {}); return;
        case Format::Mai:
            if (begins(op, "v_mfma") || begins(op, "v_smfmac")) return matrix(state, op);
            break;
        default: break;
    }
    if (is_memory(format)) {
        Defined value;
        if (cross_lane(op)) {
            meet(value, state, op.vdata);
            if (value.lanes & w.exec()) value.lanes = kAllLanes;
        } else if (state.lds_undefined) {
            value.meet(~state.lds_undefined, op.index + 1);
        }
        define(state, op.dst, w.exec(), value);
        return;
    }
    if (begins(op, "v_readlane") || begins(op, "v_readfirstlane")) {
        const int lane = begins(op, "v_readfirstlane") ? (w.exec() ? std::countr_zero(w.exec()) : 0)
                                                       : static_cast<int>(scalar32(w, op.src[1]) & 63);
        Defined source, value;
        meet(source, state, op.src[0]);
        if (!(source.lanes >> lane & 1)) value.meet(0, source.origin);
        define(state, op.dst, kAllLanes, value);
        return;
    }
    if (begins(op, "v_writelane")) {
        Defined value;
        meet(value, state, op.src[0]);
        const u64 lane = u64{1} << (scalar32(w, op.src[1]) & 63);
        define(state, op.dst, lane, value);
        return;
    }
    if (op.dst.kind == Operand::Absent) return;
    vector_after(w, op, vector_value(w, op));
}

void on_lds(Wave& w, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    std::vector<u8>& written = w.group->shadow->uninitialised.lds;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const u32 first = address[lane];
        if (first + bytes > written.size() || first + bytes < first) continue;
        if (kind != AccessKind::Write) {
            const bool all = std::all_of(written.begin() + first, written.begin() + first + bytes, [](u8 byte) { return byte; });
            if (!all) w.shadow->uninitialised.lds_undefined |= u64{1} << lane;
        }
        if (kind == AccessKind::Write) std::fill_n(written.begin() + first, bytes, u8{1});
    }
}

}  // namespace uninitialised
}  // namespace emu::checks
