// SPDX-License-Identifier: MIT
#include "definedness.h"

#include <algorithm>
#include <cstring>

#include "shadow.h"

namespace emu::checks::definedness {

// --- reading and writing the shadow -----------------------------------------------------------------------------------

namespace {

u64 scalar_bits(const UninitialisedWave& state, const Operand& operand) {
    if (operand.kind == Operand::Special) return operand.index == kScc && !state.scc ? 0 : kAllLanes;
    if (operand.kind != Operand::Scalar || operand.index >= 128u) return kAllLanes;
    const u64 high = operand.dwords > 1 ? state.sgpr[operand.index + 1] : ~u32{0};
    return state.sgpr[operand.index] | high << 32;
}

}  // namespace

void meet(Defined& result, const UninitialisedWave& state, const Operand& operand, unsigned first, unsigned count) {
    const unsigned end = std::min<unsigned>(operand.dwords, first + count);
    if (operand.kind == Operand::Vector) {
        for (unsigned i = first; i < end; ++i)
            result.meet(state.vgpr[operand.index + i], state.origin[operand.index + i]);
    } else if (operand.kind == Operand::Scalar && operand.type == Type::Mask) {
        result.meet(scalar_bits(state, operand), state.sgpr_origin[operand.index]);
    } else if (operand.kind == Operand::Scalar) {
        for (unsigned i = first; i < end && operand.index + i < 128u; ++i)
            if (~state.sgpr[operand.index + i]) result.meet(0, state.sgpr_origin[operand.index + i]);
    } else if (operand.kind == Operand::Special && operand.index == kScc && !state.scc) {
        result.meet(0, 0);
    }
}

namespace {

void define_register(UninitialisedWave& state, unsigned number, u64 lanes, const Defined& value) {
    u64& place = state.vgpr[number];
    place = (place & ~lanes) | (value.lanes & lanes);
    if (~place) state.origin[number] = value.origin;
}

}  // namespace

void define_bits(UninitialisedWave& state, unsigned code, unsigned dwords, u64 bits, u32 origin) {
    for (unsigned i = 0; i < dwords && code + i < 128u; ++i) {
        state.sgpr[code + i] = static_cast<u32>(bits >> 32 * (i & 1));
        state.sgpr_origin[code + i] = origin;
    }
}

namespace {

// A vector result. In masks of lanes, those that EXEC excludes become 0.
void define(UninitialisedWave& state, const Operand& operand, u64 lanes, const Defined& value) {
    if (operand.kind == Operand::Vector) {
        for (unsigned i = 0; i < operand.dwords; ++i) define_register(state, operand.index + i, lanes, value);
    } else if (operand.kind == Operand::Scalar) {
        define_bits(state, operand.index, operand.dwords, value.lanes | ~lanes, value.origin);
    }
}

// --- scalar instructions: before they run, since they may overwrite what they read ------------------------------------

struct Bits {
    u64 value, defined;
};

Bits operator~(Bits a) { return {~a.value, a.defined}; }
Bits operator&(Bits a, Bits b) {
    return {a.value & b.value, (a.defined & b.defined) | (a.defined & ~a.value) | (b.defined & ~b.value)};
}
Bits operator|(Bits a, Bits b) { return ~(~a & ~b); }
Bits operator^(Bits a, Bits b) { return {a.value ^ b.value, a.defined & b.defined}; }

Bits bitwise(const char* name, Bits a, Bits b) {
    if (begins_any(name, "s_andn2", "s_and_not1")) return a & ~b;
    if (begins(name, "s_andn1")) return ~a & b;
    if (begins(name, "s_orn2")) return a | ~b;
    if (begins(name, "s_orn1")) return ~a | b;
    if (begins(name, "s_and_")) return a & b;
    if (begins(name, "s_or_")) return a | b;
    if (begins(name, "s_nand_")) return ~(a & b);
    if (begins(name, "s_nor_")) return ~(a | b);
    return a ^ b;
}

}  // namespace

void scalar_before(Wave& w, const Op& op, Rule rule) {
    UninitialisedWave& state = w.shadow->uninitialised;
    const char* const name = op.inst.row->name;
    const u64 width = op.dst.dwords > 1 || op.src[0].dwords > 1 ? kAllLanes : 0xffffffffu;
    auto read = [&](const Operand& operand) { return Bits{scalar64(w, operand), scalar_bits(state, operand)}; };
    state.writes_exec = false;
    state.result_scc = state.scc;
    state.result_origin = 0;
    for (const Operand& operand : op.src)
        if (operand.kind == Operand::Scalar && ~scalar_bits(state, operand))
            state.result_origin = state.sgpr_origin[operand.index];
    if (rule == kSelect || rule == kMoveIf) {
        const Operand& kept = rule == kSelect ? op.src[1] : op.dst;
        state.result = !state.scc ? 0 : scalar_bits(state, w.scc ? op.src[0] : kept);
        return;
    }
    if (rule != kBits) {
        Defined value;
        for (const Operand& operand : op.src) meet(value, state, operand);
        if (begins_any(name, "s_addc", "s_subb") && !state.scc) value.meet(0, 0);
        state.result = value.lanes == kAllLanes ? kAllLanes : 0;
        state.result_origin = value.origin;
        if (rule == kScalar) state.result_scc = state.result != 0;
        return;
    }
    Bits result = read(op.src[0]);
    state.writes_exec = std::strstr(name, "exec") != nullptr;
    if (state.writes_exec) {
        const Bits exec = {w.exec(), state.sgpr[kExec] | u64{state.sgpr[kExec + 1]} << 32};
        result = bitwise(name, result, exec);
        state.exec = result.defined;
        state.result = std::strstr(name, "wrexec") ? result.defined : exec.defined;
    } else {
        if (op.src[1].kind != Operand::Absent) result = bitwise(name, result, read(op.src[1]));
        state.result = result.defined;
    }
    if (!begins(name, "s_mov_"))
        state.result_scc = !(~result.defined & width) || (result.value & result.defined & width);
}

void scalar_after(UninitialisedWave& state, const Op& op) {
    if (op.dst.kind == Operand::Scalar)
        define_bits(state, op.dst.index, op.dst.dwords, state.result, state.result_origin);
    if (state.writes_exec) define_bits(state, kExec, 2, state.exec, state.result_origin);
    state.scc = state.result_scc;
}

namespace {

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
                const int row = size == 16   ? 4 * (lane / 16) + static_cast<int>(i)
                                : size == 32 ? 8 * static_cast<int>(i / 4) + 4 * (lane / 32) + static_cast<int>(i % 4)
                                             : 0;
                if ((rows >> row & 1) || (columns >> (size ? lane % size : 0) & 1)) value.lanes &= ~(u64{1} << lane);
            }
        }
        define_register(state, op.dst.index + i, kAllLanes, value);
    }
}

// --- vector arithmetic ----------------------------------------------------------------------------------------------

Defined of_all(const UninitialisedWave& state, const Op& op) {
    Defined value;
    for (const Operand& operand : op.src) meet(value, state, operand);
    return value;
}

Defined chosen(Wave& w, const Op& op) {
    const UninitialisedWave& state = w.shadow->uninitialised;
    Defined value, no, yes;
    meet(no, state, op.src[0]);
    meet(yes, state, op.src[1]);
    const u64 choice = scalar64(w, op.src[2]);
    value.meet((choice & yes.lanes) | (~choice & no.lanes), yes.origin ? yes.origin : no.origin);
    meet(value, state, op.src[2]);
    return value;
}

// Vectors of small elements are put together piece by piece, from a register that was undefined: as half of a register counts
// for all of it, the piece that goes in decides. v_bfi_b32: bits of the second source where the first one has a 1.
Defined inserted(Wave& w, const Op& op) {
    const UninitialisedWave& state = w.shadow->uninitialised;
    Defined value, piece, old;
    meet(piece, state, op.src[1]);
    meet(old, state, op.src[2]);
    alignas(64) u32 scratch[kLanes];
    const u32* const mask = vector_words(w, op.src[0], scratch);
    u64 touched = 0;
    for (int lane = 0; lane < kLanes; ++lane) touched |= u64{mask[lane] != 0} << lane;
    value.meet((touched & piece.lanes) | (~touched & old.lanes), piece.origin ? piece.origin : old.origin);
    meet(value, state, op.src[0]);
    return value;
}

Defined of_either(const UninitialisedWave& state, const Op& op) {
    Defined value, first, second;
    meet(first, state, op.src[0]);
    meet(second, state, op.src[1]);
    value.meet(first.lanes | second.lanes, first.origin ? first.origin : second.origin);
    meet(value, state, op.src[2]);
    return value;
}

// Results of two registers whose halves depend on different halves of the sources.
void pair_result(Wave& w, const Op& op, Rule rule) {
    UninitialisedWave& state = w.shadow->uninitialised;
    Defined low, high;
    if (rule == kPairs) {
        for (const Operand& operand : op.src) {
            if (operand.kind == Operand::Absent) continue;
            const bool two = operand.dwords > 1;
            meet(low, state, operand, two && operand.flags & kHigh ? 1 : 0, 1);
            meet(high, state, operand, two && operand.flags & kHighForHigh ? 1 : 0, 1);
        }
    } else if (rule == kWide) {
        for (const Operand& operand : op.src) meet(low, state, operand, 0, 1);
        high = of_all(state, op);
    } else {
        // v_*rev_b64: the count comes first; from 32 on, a half of the result hangs on the other half of the source.
        const Operand& count = op.src[0];
        const bool far = count.kind == Operand::Constant && (count.value & 63) >= 32, left = rule == kShiftLeft;
        low = high = of_all(state, op);
        Defined one;
        meet(one, state, count);
        meet(one, state, op.src[1], left ? 0 : 1, 1);
        if (left) low = one;
        if (far && left) low = {}, high = one;
        if (!left) high = one;
        if (far && !left) low = one;
    }
    define_register(state, op.dst.index, w.exec(), low);
    define_register(state, op.dst.index + 1, w.exec(), high);
    if (op.sdst.kind != Operand::Absent) define(state, op.sdst, w.exec(), high);
}

void lanes_after(Wave& w, const Op& op, Rule rule) {
    UninitialisedWave& state = w.shadow->uninitialised;
    Defined value = rule == kFresh    ? Defined()
                    : rule == kChoose ? chosen(w, op)
                    : rule == kInsert ? inserted(w, op)
                    : rule == kEither ? of_either(state, op)
                                      : of_all(state, op);
    // Where lanes come from is not followed; a register that is defined in part is taken as defined.
    if (op.inst.dpp && value.lanes & w.exec()) value.lanes = kAllLanes;
    define(state, op.dst, w.exec(), value);
    if (op.sdst.kind != Operand::Absent) define(state, op.sdst, w.exec(), value);
    if (op.dst.type == Type::Mask && begins(op.inst.row->name, "v_cmpx"))
        define_bits(state, kExec, 2, value.lanes, value.origin);
}

void lane_after(Wave& w, const Op& op, Rule rule) {
    UninitialisedWave& state = w.shadow->uninitialised;
    Defined source, value;
    if (rule == kWriteLane) {
        // How compilers spill scalar registers. A lane has one bit for all 32, so a mask of lanes that is defined in part,
        // where EXEC was set, passes for defined.
        if (!static_cast<u32>(scalar_bits(state, op.src[0]))) meet(source, state, op.src[0]);
        return define(state, op.dst, u64{1} << (scalar32(w, op.src[1]) & 63), source);
    }
    meet(source, state, op.src[0]);
    const int lane = begins(op.inst.row->name, "v_readfirstlane") ? (w.exec() ? std::countr_zero(w.exec()) : 0)
                                                                  : static_cast<int>(scalar32(w, op.src[1]) & 63);
    if (!(source.lanes >> lane & 1)) value.meet(0, source.origin);
    define(state, op.dst, kAllLanes, value);
}

void memory_after(Wave& w, const Op& op, Rule rule) {
    UninitialisedWave& state = w.shadow->uninitialised;
    if (op.dst.kind != Operand::Vector) return;
    Defined value;
    if (rule == kPermute) {
        meet(value, state, op.vdata);
        if (value.lanes & w.exec()) value.lanes = kAllLanes;
    }
    for (unsigned i = 0; i < op.dst.dwords; ++i) {
        Defined part = value;
        if (i < std::size(state.undefined) && state.undefined[i]) part.meet(~state.undefined[i], op.index + 1);
        define_register(state, op.dst.index + i, w.exec(), part);
    }
}

}  // namespace

void vector_after(Wave& w, const Op& op, Rule rule) {
    switch (rule) {
        case kMatrix: return matrix(w.shadow->uninitialised, op);
        case kMemory:
        case kPermute: return memory_after(w, op, rule);
        case kReadLane:
        case kWriteLane: return lane_after(w, op, rule);
        case kPairs:
        case kWide:
        case kShiftLeft:
        case kShiftRight: return pair_result(w, op, rule);
        default: return lanes_after(w, op, rule);
    }
}

}  // namespace emu::checks::definedness
