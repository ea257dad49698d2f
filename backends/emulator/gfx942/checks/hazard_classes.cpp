// SPDX-License-Identifier: MIT
#include "hazard_classes.h"

#include <algorithm>
#include <string_view>

#include "plan.h"

namespace emu::checks {
namespace {

bool begins(std::string_view name, std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; }
bool contains(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

u32 matrix(std::string_view name) {
    if (begins(name, "v_smfmac")) return kVector | kMatrix | kXdl | kSparse;
    if (!begins(name, "v_mfma")) return kVector;  // v_accvgpr_*
    if (begins(name, "v_mfma_f64")) return kVector | kMatrix | kDgemm;
    const bool single = name.size() > 4 && name.substr(name.size() - 4) == "_f32" && !contains(name, "xf32");
    return kVector | kMatrix | (single ? 0u : u32{kXdl});
}

// Where the result lies: SDWA's dst_sel, the destination's bit of op_sel in VOP3 (for v_cvt_sr_fp8 a byte selection).
bool moves_result(const Op& op, std::string_view name) {
    constexpr u8 kDword = 6;
    if (op.inst.sdwa) return op.inst.dst_sel != kDword && op.dst.kind == Operand::Vector;
    if (!op.inst.vop3 && op.inst.row->format != Format::Vop3) return false;
    if (begins(name, "v_cvt_sr_")) return op.inst.op_sel >> 2 != 0;
    return op.inst.op_sel & 8;
}

u32 vector(const Op& op, std::string_view name) {
    u32 classes = kVector;
    if (op.inst.row->flags & kTranscendental) classes |= kTrans;
    if (begins(name, "v_dot")) classes |= kDot;
    if (op.inst.dpp) classes |= kDpp;
    if (begins(name, "v_readlane") || begins(name, "v_readfirstlane")) classes |= kReadLane;
    if (begins(name, "v_writelane")) classes |= kWriteLane;
    if (begins(name, "v_readlane") || begins(name, "v_writelane")) classes |= kSelectsLane;
    if (begins(name, "v_div_fmas")) classes |= kDivFmas;
    if (name == "v_fma_f64" || name == "v_fmac_f64") classes |= kFma64;
    if (moves_result(op, name)) classes |= kMovesResult;
    if (begins(name, "v_cmpx")) classes |= kSetsExec;
    for (const Operand& source : op.src)
        if (source.kind == Operand::Special && (source.index == kVccz || source.index == kExecz))
            classes |= kReadsZeroFlag;
    return classes;
}

// A buffer store with a scalar register as offset takes a cycle more, in which the data get away.
u32 vector_memory(const Op& op) {
    u32 classes = kVmem;
    const Format format = op.inst.row->format;
    const bool buffer = format == Format::Mubuf || format == Format::Mtbuf;
    if (op.inst.row->flags & (kStore | kAtomic) && op.vdata.dwords > 2 &&
        !(buffer && op.soffset.kind == Operand::Scalar))
        classes |= kWideStore;
    if (op.inst.lds || contains(op.inst.row->name, "load_lds")) classes |= kUsesM0;
    return classes;
}

u32 scalar(std::string_view name) {
    u32 classes = kScalarAlu;
    if (begins(name, "s_setreg")) classes |= kSetRegister;
    if (begins(name, "s_getreg")) classes |= kGetRegister;
    if (begins(name, "s_movrel") || begins(name, "s_sendmsg") || begins(name, "s_ttracedata")) classes |= kUsesM0;
    return classes;
}

}  // namespace

u32 hazard_classes(const Op& op) {
    if (!op.inst.row) return 0;
    const std::string_view name = op.inst.row->name;
    switch (op.inst.row->format) {
        case Format::Sop1:
        case Format::Sop2:
        case Format::Sopk:
        case Format::Sopc:
        case Format::Sopp: return scalar(name);
        case Format::Smem: return 0;
        case Format::Vop1:
        case Format::Vop2:
        case Format::Vopc:
        case Format::Vop3:
        case Format::Vop3p: return vector(op, name);
        case Format::Mai: return matrix(name);
        case Format::Ds: return kLds | (contains(name, "addtid") || op.inst.gds ? u32{kUsesM0} : 0u);
        default: return vector_memory(op);
    }
}

}  // namespace emu::checks
