// SPDX-License-Identifier: MIT
#include "uninitialised.h"

#include <algorithm>
#include <cstring>

#include "definedness.h"
#include "shadow.h"

namespace emu::checks {

using namespace definedness;

namespace {

std::string source_of(const Wave& w, u32 origin) {
    if (!origin) return "a register that nothing was written to";
    return "read from memory of the workgroup's own that nobody had written, at " + where(*w.group->launch, origin - 1);
}

void complain(Wave& w, const Op& op, const Defined& value, u64 lanes, const std::string& use) {
    const u64 wrong = ~value.lanes & lanes;
    if (!wrong || repeated(w, op, kUninitialised)) return;
    const bool whole_wave = wrong == kAllLanes;
    report(
        w, op, kUninitialised, whole_wave ? -1 : std::countr_zero(wrong),
        use + " is undefined" + (whole_wave ? "" : "; " + lanes_text(wrong)), "",
        "the value: " + source_of(w, value.origin));
}

void check_address(Wave& w, const Op& op, u64 lanes) {
    const UninitialisedWave& state = w.shadow->uninitialised;
    Defined address;
    for (const Operand* operand : {&op.vaddr, &op.saddr, &op.soffset}) meet(address, state, *operand);
    if (~address.lanes & lanes) [[unlikely]]
        complain(w, op, address, lanes, "the address");
}

// A mask of lanes decides by being zero or not, which a single defined bit that is set settles.
void check_branch(Wave& w, const Op& op) {
    const UninitialisedWave& state = w.shadow->uninitialised;
    const char* const name = op.inst.row->name;
    Defined value;
    if (!std::strncmp(name, "s_cbranch_scc", 13)) {
        if (!state.scc) value.meet(0, 0);
    } else {
        const unsigned code = !std::strncmp(name, "s_cbranch_vcc", 13) ? kVcc : kExec;
        const u64 bits = state.sgpr[code] | u64{state.sgpr[code + 1]} << 32;
        if (bits != kAllLanes && !(w.pair(code) & bits)) value.meet(0, state.sgpr_origin[code]);
    }
    complain(w, op, value, kAllLanes, "what the branch depends on");
}

// One byte a byte: lanes of `lanes` that find a 0 among theirs, by dword.
void note_undefined(UninitialisedWave& state, int lane, const u8* shadow, u32 bytes) {
    for (u32 at = 0; at < bytes; at += 4) {
        const u32 dword = state.dwords_read + at / 4;
        if (dword < std::size(state.undefined) && std::memchr(shadow + at, 0, std::min(4u, bytes - at)))
            state.undefined[dword] |= u64{1} << lane;
    }
}

}  // namespace

void begin(UninitialisedLaunch& state, const Launch& launch) {
    state.rules.reserve(launch.program->ops.size());
    for (const Op& op : launch.program->ops) state.rules.push_back(rule_of(op));
}

void begin(UninitialisedGroup& state, const Workgroup& group) { state.lds.assign(group.lds_bytes, 0); }

void begin(UninitialisedWave& state, const Wave& wave) {
    state.vgpr.assign(wave.vgpr_count, 0);
    state.origin.assign(wave.vgpr_count, 0);
    if (wave.vgpr_count) state.vgpr[0] = kAllLanes;
    for (unsigned i = 0; i < 128; ++i) state.sgpr[i] = wave.sgpr[i] != kPoison ? ~u32{0} : 0;
    state.sgpr[kVcc] = state.sgpr[kVcc + 1] = 0;
    state.scratch.assign(size_t{wave.group->launch->scratch_bytes} * kLanes, 0);
}

namespace uninitialised {

void before(Wave& w, const Op& op) {
    UninitialisedWave& state = w.shadow->uninitialised;
    switch (const Rule rule = static_cast<Rule>(launch_of(w).uninitialised.rules[op.index])) {
        case kBranch: return check_branch(w, op);
        case kScalar:
        case kScalarQuiet:
        case kBits:
        case kSelect:
        case kMoveIf: return scalar_before(w, op, rule);
        case kScalarMemory: return check_address(w, op, kAllLanes);
        case kMemory:
        case kPermute:
            std::fill(std::begin(state.undefined), std::end(state.undefined), 0);
            state.dwords_read = 0;
            return check_address(w, op, w.exec());
        default: return;
    }
}

void after(Wave& w, const Op& op) {
    UninitialisedWave& state = w.shadow->uninitialised;
    switch (const Rule rule = static_cast<Rule>(launch_of(w).uninitialised.rules[op.index])) {
        case kNothing:
        case kBranch: return;
        case kDefinedScalar:
        case kScalarMemory:
            if (op.dst.kind == Operand::Scalar) define_bits(state, op.dst.index, op.dst.dwords, kAllLanes, 0);
            return;
        case kScalar:
        case kScalarQuiet:
        case kBits:
        case kSelect:
        case kMoveIf: return scalar_after(state, op);
        default: return vector_after(w, op, rule);
    }
}

void on_global(Wave& w, const Op& op, u64 lanes, AccessKind kind) {
    if (kind == AccessKind::Read || op.vdata.kind == Operand::Absent) return;
    Defined data;
    meet(data, w.shadow->uninitialised, op.vdata);
    if (~data.lanes & lanes) [[unlikely]]
        complain(w, op, data, lanes, "what is stored to memory");
}

// Of atomics only an exchange changes what is defined. A store to two addresses has data of its own for the second one.
void on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    const bool overwrites = kind == AccessKind::Write || w.shadow->facts[op.index].what & kExchanges;
    std::vector<u8>& written = w.group->shadow->uninitialised.lds;
    UninitialisedWave& state = w.shadow->uninitialised;
    const Operand& data =
        state.dwords_read && op.vdata2.kind != Operand::Absent && kind == AccessKind::Write ? op.vdata2 : op.vdata;
    u64 defined[4] = {kAllLanes, kAllLanes, kAllLanes, kAllLanes};
    for (unsigned i = 0; overwrites && i < std::size(defined) && 4 * i < bytes; ++i) {
        Defined value;
        meet(value, state, data, i, 1);
        defined[i] = value.lanes;
    }
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const u32 first = address[lane];
        if (first + bytes > written.size() || first + bytes < first) continue;
        if (kind != AccessKind::Write) note_undefined(state, lane, written.data() + first, bytes);
        for (u32 at = 0; overwrites && at < bytes; at += 4)
            std::memset(
                written.data() + first + at, static_cast<int>(defined[std::min<u32>(at / 4, 3)] >> lane & 1),
                std::min(4u, bytes - at));
    }
    if (op.inst.format == Format::Ds)
        state.dwords_read += (bytes + 3) / 4;  // the second address has the next registers
}

void on_scratch(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind) {
    UninitialisedWave& state = w.shadow->uninitialised;
    const size_t each = w.group->launch->scratch_bytes;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        if (u64{offset[lane]} + bytes > each) continue;
        u8* const shadow = state.scratch.data() + each * static_cast<size_t>(lane) + offset[lane];
        if (kind != AccessKind::Write) {
            note_undefined(state, lane, shadow, bytes);
            continue;
        }
        for (u32 at = 0; at < bytes; at += 4) {
            Defined data;
            meet(data, state, op.vdata, at / 4, 1);
            std::memset(shadow + at, static_cast<int>(data.lanes >> lane & 1), std::min(4u, bytes - at));
        }
    }
}

}  // namespace uninitialised
}  // namespace emu::checks
