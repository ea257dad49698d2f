// SPDX-License-Identifier: MIT
#include "flow.h"

#include <algorithm>
#include <cstring>

namespace emu::checks::definedness {
namespace {

bool same_register(const Op& op) {
    return op.src[0].kind == op.src[1].kind && op.src[0].index == op.src[1].index &&
           (op.src[0].kind == Operand::Vector || op.src[0].kind == Operand::Scalar);
}

Rule scalar_rule(const Op& op, const char* name) {
    if (begins_any(name, "s_getpc", "s_getreg", "s_swappc")) return kDefinedScalar;
    if (begins(name, "s_xor") && same_register(op)) return kDefinedScalar;
    if (begins(name, "s_cselect")) return kSelect;
    if (begins(name, "s_cmov")) return kMoveIf;
    if (begins_any(
            name, "s_and_", "s_andn", "s_or_", "s_orn", "s_xor_", "s_nand_", "s_nor_", "s_xnor_", "s_not_", "s_mov_"))
        return kBits;
    if (begins_any(
            name, "s_mov", "s_mul", "s_brev", "s_ff", "s_flbit", "s_sext", "s_bitset", "s_bfm", "s_pack", "s_set"))
        return kScalarQuiet;
    return kScalar;
}

Rule vector_rule(const Op& op, const char* name) {
    if (same_register(op) && begins_any(name, "v_xor_b32", "v_sub_u32", "v_sub_co_u32")) return kFresh;
    if (begins(name, "v_cndmask_b32")) return kChoose;
    if (begins(name, "v_bfi_b32")) return kInsert;
    if (begins_any(name, "v_perm_b32", "v_pack_b32_f16")) return kEither;
    if (begins_any(name, "v_readlane", "v_readfirstlane")) return kReadLane;
    if (begins(name, "v_writelane")) return kWriteLane;
    if (begins_any(name, "v_mad_u64_u32", "v_mad_i64_i32", "v_lshl_add_u64")) return kWide;
    if (begins(name, "v_lshlrev_b64")) return kShiftLeft;
    if (begins_any(name, "v_lshrrev_b64", "v_ashrrev_i64")) return kShiftRight;
    if (op.src[0].type == Type::PF32 || op.src[0].type == Type::PB32) return kPairs;
    return kVector;
}

Rule rule_of(const Op& op) {
    if (!op.inst.row) return kNothing;
    const char* const name = op.inst.row->name;
    switch (op.inst.row->format) {
        case Format::Sop1:
        case Format::Sop2:
        case Format::Sopk:
        case Format::Sopc: return scalar_rule(op, name);
        case Format::Sopp:
            return begins_any(name, "s_cbranch_scc", "s_cbranch_vcc", "s_cbranch_exec") ? kBranch : kNothing;
        case Format::Smem: return kScalarMemory;
        case Format::Mai: return begins_any(name, "v_mfma", "v_smfmac") ? kMatrix : kVector;
        default: break;
    }
    if (op.inst.row->format >= Format::Ds)
        return begins_any(name, "ds_swizzle", "ds_bpermute", "ds_permute") ? kPermute : kMemory;
    return op.dst.kind == Operand::Absent ? kNothing : vector_rule(op, name);
}

constexpr unsigned kScalars = 128;  // whose definedness is known

unsigned scalars_of(const Operand& operand) {
    return operand.index >= kScalars ? 0 : std::min<unsigned>(operand.dwords, kScalars - operand.index);
}

void reads(Flow& flow, const Operand& operand) {
    if (operand.kind == Operand::Vector) flow.vectors.add(operand.index, operand.dwords);
    if (operand.kind == Operand::Scalar) flow.scalars.add(operand.index, scalars_of(operand));
    if (operand.kind == Operand::Special && operand.index == kScc) flow.reads_scc = true;
}

void writes(Flow& flow, const Operand& operand) {
    if (operand.kind == Operand::Vector) flow.results.add(operand.index, operand.dwords);
    if (operand.kind == Operand::Scalar) flow.scalar_results.add(operand.index, scalars_of(operand));
}

// What the branch's name says that it looks at.
void branch(Flow& flow, const char* name) {
    if (begins(name, "s_cbranch_scc")) flow.reads_scc = true;
    else flow.scalars.add(begins(name, "s_cbranch_vcc") ? kVcc : kExec, 2);
}

void scalar(Flow& flow, const Op& op, const char* name) {
    if (flow.rule != kDefinedScalar)
        for (const Operand& operand : op.src) reads(flow, operand);
    writes(flow, op.dst);
    flow.reads_scc |= flow.rule == kSelect || flow.rule == kMoveIf || begins_any(name, "s_addc", "s_subb");
    flow.writes_scc = flow.rule == kScalar || (flow.rule == kBits && !begins(name, "s_mov_"));
    if (flow.rule == kMoveIf) reads(flow, op.dst);
    if (flow.rule == kBits && std::strstr(name, "exec")) {
        flow.scalars.add(kExec, 2);
        flow.scalar_results.add(kExec, 2);
    }
}

void vector(Flow& flow, const Op& op, const char* name) {
    if (flow.rule != kFresh)
        for (const Operand& operand : op.src) reads(flow, operand);
    writes(flow, op.dst);
    writes(flow, op.sdst);
    if (op.dst.type == Type::Mask && begins(name, "v_cmpx")) flow.scalar_results.add(kExec, 2);
    flow.all_lanes = flow.rule == kMatrix || flow.rule == kReadLane;
}

void address(Flow& flow, const Op& op) {
    for (const Operand* operand : {&op.vaddr, &op.saddr, &op.soffset}) reads(flow, *operand);
    writes(flow, op.dst);
}

template <size_t kMost>
bool within(const Runs<kMost>& runs, unsigned registers) {
    return std::all_of(runs.begin(), runs.end(), [=](const Run& run) { return run.end() <= registers; });
}

}  // namespace

Flow flow_of(const Op& op, unsigned registers) {
    Flow flow;
    flow.rule = rule_of(op);
    if (flow.rule == kNothing) return flow;
    const char* const name = op.inst.row->name;
    switch (flow.rule) {
        case kBranch: branch(flow, name); break;
        case kDefinedScalar:
        case kScalar:
        case kScalarQuiet:
        case kBits:
        case kSelect:
        case kMoveIf: scalar(flow, op, name); break;
        case kScalarMemory:
        case kMemory:
        case kPermute: address(flow, op); break;
        default: vector(flow, op, name);
    }
    // A lane's part of a register is written by v_writelane. Registers that the wave does not have stop the kernel.
    flow.quick = flow.rule != kWriteLane && within(flow.vectors, registers) && within(flow.results, registers);
    return flow;
}

}  // namespace emu::checks::definedness
