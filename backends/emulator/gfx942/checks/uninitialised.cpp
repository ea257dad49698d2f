// SPDX-License-Identifier: MIT
#include "uninitialised.h"

#include <algorithm>
#include <cstring>

#include "definedness.h"
#include "runs.h"
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

constexpr u32 kFourWritten = 0x01010101;  // of a shadow that has one byte a byte

bool is_written(const u8* shadow, u32 bytes) {
    if (bytes != 4) return !std::memchr(shadow, 0, bytes);
    u32 four;
    std::memcpy(&four, shadow, sizeof four);
    return four == kFourWritten;
}

/// The lane finds what nobody wrote, by dword.
void note_undefined(UninitialisedWave& state, int lane, const u8* shadow, u32 bytes) {
    for (u32 at = 0; at < bytes; at += 4) {
        const u32 dword = state.dwords_read + at / 4;
        if (dword < std::size(state.undefined) && !is_written(shadow + at, std::min(4u, bytes - at)))
            state.undefined[dword] |= u64{1} << lane;
    }
}

/// The lane writes something that is defined, or not, by dword.
void mark(u8* shadow, u32 bytes, const u64* defined, int lane) {
    for (u32 at = 0; at < bytes; at += 4) {
        const u32 four = defined[std::min<u32>(at / 4, 3)] >> lane & 1 ? kFourWritten : 0;
        std::memcpy(shadow + at, &four, std::min(4u, bytes - at));
    }
}

/// True if all that lies between the first and the last byte that the lanes access was written: no more than that is known.
bool all_written(const std::vector<u8>& written, const u32* address, u64 lanes, u32 bytes) {
    constexpr u32 kFar = 2048;  // then a look at each lane's bytes costs less
    if (lanes != kAllLanes) return false;
    const u32v all = load<u32v>(address);
    const u32 low = __builtin_reduce_min(all), size = __builtin_reduce_max(all) - low + bytes;
    return size <= kFar && !std::memchr(written.data() + low, 0, size);
}

}  // namespace

void begin(UninitialisedGroup& state, const Workgroup& group) { state.lds.assign(group.lds_bytes, 0); }

void begin(UninitialisedWave& state, const Wave& wave) {
    state.vgpr.assign(wave.vgpr_count, 0);
    state.origin.assign(wave.vgpr_count, 0);
    if (wave.vgpr_count) state.vgpr[0] = kAllLanes;
    for (unsigned i = 0; i < 128; ++i) state.sgpr[i] = wave.sgpr[i] != kPoison ? ~u32{0} : 0;
    state.sgpr[kVcc] = state.sgpr[kVcc + 1] = 0;
    std::fill(std::begin(state.sgpr_origin), std::end(state.sgpr_origin), 0);
    state.scc = false;
    state.scratch.assign(size_t{wave.group->launch->scratch_bytes} * kLanes, 0);
}

namespace uninitialised {

void before(Wave& w, const Op& op) {
    UninitialisedWave& state = w.shadow->uninitialised;
    const Flow& flow = w.shadow->flows[op.index];
    const Rule rule = flow.rule;
    const u64 exec = w.exec(), lanes = flow.all_lanes ? kAllLanes : exec;
    const bool quick = flow.quick && all_defined(state, flow, lanes);
    if (rule == kMemory || rule == kPermute) {
        std::fill(std::begin(state.undefined), std::end(state.undefined), 0);
        state.dwords_read = 0;
        state.settled = false;
        if (!quick) check_address(w, op, exec);
        return;
    }
    state.settled = quick || rule == kNothing || rule == kBranch;
    if (quick) [[likely]]
        return define_results(state, flow, lanes);
    switch (rule) {
        case kBranch: return check_branch(w, op);
        case kScalar:
        case kScalarQuiet:
        case kBits:
        case kSelect:
        case kMoveIf: return scalar_before(w, op, rule);
        case kScalarMemory: return check_address(w, op, kAllLanes);
        default: return;
    }
}

void after(Wave& w, const Op& op) {
    UninitialisedWave& state = w.shadow->uninitialised;
    if (state.settled) [[likely]]
        return;
    const Flow& flow = w.shadow->flows[op.index];
    switch (flow.rule) {
        case kDefinedScalar:
        case kScalarMemory:
            if (op.dst.kind == Operand::Scalar) define_bits(state, op.dst.index, op.dst.dwords, kAllLanes, 0);
            return;
        case kScalar:
        case kScalarQuiet:
        case kBits:
        case kSelect:
        case kMoveIf: return scalar_after(state, op);
        case kMemory:
            if (!(state.undefined[0] | state.undefined[1] | state.undefined[2] | state.undefined[3]) && flow.quick)
                return define_results(state, flow, w.exec());
            [[fallthrough]];
        default: return vector_after(w, op, flow.rule);
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
    if (kind != AccessKind::Write && !all_written(written, address, lanes, bytes)) {
        for (u64 rest = lanes; rest; rest &= rest - 1) {
            const int lane = std::countr_zero(rest);
            note_undefined(state, lane, written.data() + address[lane], bytes);
            if (overwrites)
                mark(written.data() + address[lane], bytes, defined, lane);  // the next lane may meet it there
        }
    } else if (overwrites && !(~(defined[0] & defined[1] & defined[2] & defined[3]) & lanes)) {
        const LaneRuns runs = runs_of(address, lanes, bytes, false);
        for (u64 rest = runs.starts(); rest; rest &= rest - 1) {
            const int lane = std::countr_zero(rest);
            std::memset(written.data() + address[lane], 1, size_t{bytes} * static_cast<size_t>(runs.size(lane)));
        }
    } else if (overwrites) {
        for (u64 rest = lanes; rest; rest &= rest - 1) {
            const int lane = std::countr_zero(rest);
            mark(written.data() + address[lane], bytes, defined, lane);
        }
    }
    if (op.inst.format == Format::Ds)
        state.dwords_read += (bytes + 3) / 4;  // the second address has the next registers
}

void on_scratch(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind) {
    UninitialisedWave& state = w.shadow->uninitialised;
    const size_t each = w.group->launch->scratch_bytes;
    u64 defined[4] = {kAllLanes, kAllLanes, kAllLanes, kAllLanes};
    for (unsigned i = 0; kind != AccessKind::Read && i < std::size(defined) && 4 * i < bytes; ++i) {
        Defined data;
        meet(data, state, op.vdata, i, 1);
        defined[i] = data.lanes;
    }
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        if (u64{offset[lane]} + bytes > each) continue;
        u8* const shadow = state.scratch.data() + each * static_cast<size_t>(lane) + offset[lane];
        if (kind != AccessKind::Write) {
            note_undefined(state, lane, shadow, bytes);
            continue;
        }
        mark(shadow, bytes, defined, lane);
    }
}

}  // namespace uninitialised
}  // namespace emu::checks
