// SPDX-License-Identifier: MIT
// Instructions as text, in LLVM's syntax, for reports and for tests of the decoder.
#include <cstdio>
#include <cstring>

#include "core/text.h"
#include "operands.h"
#include "table.h"
#include "wave.h"

namespace emu {
namespace {

std::string range(const char* file, unsigned first, unsigned count) {
    char text[32];
    if (count <= 1) std::snprintf(text, sizeof text, "%s%u", file, first);
    else std::snprintf(text, sizeof text, "%s[%u:%u]", file, first, first + count - 1);
    return text;
}

bool is(const Inst& inst, const char* name) { return !std::strcmp(inst.row->name, name); }
bool has(const Inst& inst, const char* part) { return std::strstr(inst.row->name, part) != nullptr; }

std::string scalar_text(unsigned code, unsigned dwords, u32 literal) {
    struct Special {
        unsigned code;
        const char *single, *pair;
    };
    constexpr Special kSpecials[] = {
        {kFlatScratch, "flat_scratch_lo", "flat_scratch"},
        {kFlatScratch + 1, "flat_scratch_hi", ""},
        {kXnack, "xnack_mask_lo", "xnack_mask"},
        {kXnack + 1, "xnack_mask_hi", ""},
        {kVcc, "vcc_lo", "vcc"},
        {kVcc + 1, "vcc_hi", ""},
        {kM0, "m0", "m0"},
        {kExec, "exec_lo", "exec"},
        {kExec + 1, "exec_hi", ""},
        {kSharedBase, "src_shared_base", "src_shared_base"},
        {kSharedLimit, "src_shared_limit", "src_shared_limit"},
        {kPrivateBase, "src_private_base", "src_private_base"},
        {kPrivateLimit, "src_private_limit", "src_private_limit"},
        {kPopsExitingWaveId, "src_pops_exiting_wave_id", "src_pops_exiting_wave_id"},
        {kVccz, "src_vccz", "src_vccz"},
        {kExecz, "src_execz", "src_execz"},
        {kScc, "src_scc", "src_scc"},
        {kLdsDirect, "src_lds_direct", ""},
    };
    constexpr const char* kFloats[] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"};
    for (const Special& special : kSpecials)
        if (special.code == code) return dwords > 1 ? special.pair : special.single;
    if (code < kFlatScratch) return range("s", code, dwords);
    if (code >= kTtmp && code < kM0) return range("ttmp", code - kTtmp, dwords);
    if (code == kLiteral) return hex(literal);
    if (code == kLastInlineFloat && dwords > 1) return "0.15915494309189532";
    if (code >= kFirstInlineFloat && code <= kLastInlineFloat) return kFloats[code - kFirstInlineFloat];
    if (code >= kFirstInlineInteger && code <= kLastInlineInteger)
        return std::to_string(code <= 192 ? int(code) - 128 : 192 - int(code));
    return "?" + std::to_string(code);
}

std::string source_text(u16 code, TypedOperand type, u32 literal, bool acc) {
    if (code >= kVgpr0) return range(acc ? "a" : "v", code - kVgpr0, type.dwords);
    return scalar_text(code, type.dwords, literal);
}

class Text {
public:
    explicit Text(const char* mnemonic) : text_(mnemonic) {}
    void operand(const std::string& operand) {
        text_ += (first_ ? " " : ", ") + operand;
        first_ = false;
    }
    void modifier(const std::string& modifier) { text_ += " " + modifier; }
    std::string text_;

private:
    bool first_ = true;
};

void scalar_memory_operands(const Inst& inst, const Signature& types, Text& out) {
    const bool address =
        has(inst, "load") || has(inst, "store") || has(inst, "atomic") || has(inst, "probe") || has(inst, "discard");
    if (has(inst, "probe")) out.operand(std::to_string(inst.dst));
    if (types.sources)
        out.operand(scalar_text(inst.dst, types.src[0].dwords, 0));  // an atomic's result replaces its data
    else if (types.dst.type != Type::None) out.operand(scalar_text(inst.dst, types.dst.dwords, 0));
    if (!address) return;
    const std::string offset =
        inst.offset < 0 ? "-" + hex(static_cast<u32>(-inst.offset)) : hex(static_cast<u32>(inst.offset));
    out.operand(scalar_text(inst.saddr, has(inst, "buffer") ? 4 : 2, 0));
    out.operand(inst.has_soffset ? scalar_text(inst.soffset, 1, 0) : offset);
    if (inst.has_soffset && inst.offset) out.modifier("offset:" + offset);
    if (inst.sc0) out.modifier("glc");
}

void scalar_operands(const Inst& inst, const Signature& types, Text& out) {
    if (inst.format == Format::Smem) return scalar_memory_operands(inst, types, out);
    // These name the register that is changed after the one that says what with, and it is written by its number.
    const bool set = is(inst, "s_setreg_b32") || is(inst, "s_setreg_imm32_b32");
    if (types.dst.type != Type::None) out.operand(scalar_text(inst.dst, types.dst.dwords, 0));
    if (inst.format == Format::Sopk) {
        if (set) out.operand(hex(inst.simm & 0xffff));
        if (types.dst.type == Type::None && types.sources) out.operand(scalar_text(inst.dst, types.src[0].dwords, 0));
        if (!set) out.operand(hex(inst.simm & 0xffff));
        if (inst.has_literal) out.operand(hex(inst.literal));
        return;
    }
    if (inst.format == Format::Sopp) {
        for (const char* bare :
             {"s_endpgm_saved", "s_endpgm_ordered_ps_done", "s_barrier", "s_wakeup", "s_icache_inv", "s_ttracedata",
              "s_set_gpr_idx_off"})
            if (is(inst, bare)) return;
        if (is(inst, "s_endpgm") && !inst.simm) return;
        out.operand((inst.row->flags & kBranch) ? std::to_string(inst.simm & 0xffff) : hex(inst.simm & 0xffff));
        return;
    }
    const bool field = is(inst, "s_set_gpr_idx_on");  // whose second operand is no register
    for (int i = 0; i < types.sources; ++i) {
        if (types.src[i].type == Type::Tied) continue;
        out.operand(field && i == 1 ? hex(inst.src[1]) : scalar_text(inst.src[i], types.src[i].dwords, inst.literal));
    }
}

void vector_operands(const Inst& inst, const Signature& types, Text& out) {
    const bool matrix = inst.row->format == Format::Mai, acc_cd = inst.acc & 0x80;
    const bool read = matrix && !std::strcmp(inst.row->name, "v_accvgpr_read_b32");
    const bool write = matrix && !std::strcmp(inst.row->name, "v_accvgpr_write_b32");
    const bool move = !std::strcmp(inst.row->name, "v_accvgpr_mov_b32");
    const bool sparse = has(inst, "v_smfmac");  // whose indices are never AGPRs
    if (types.dst.type == Type::Mask || inst.dst_is_scalar) out.operand(scalar_text(inst.dst, types.dst.dwords, 0));
    else if (types.dst.type != Type::None)
        out.operand(range(move || write || (matrix && acc_cd && !read) ? "a" : "v", inst.dst, types.dst.dwords));
    if (types.sdst.type != Type::None) out.operand(scalar_text(inst.sdst, types.sdst.dwords, 0));
    for (int i = 0, place = 0; i < types.sources; ++i) {
        if (types.src[i].type == Type::Tied) continue;
        const bool acc = move || read || (matrix && !write && (i < 2 ? inst.acc >> i & 1 : acc_cd && !sparse));
        const TypedOperand type = types.src[i].type == Type::Literal ? TypedOperand{Type::B32, 1} : types.src[i];
        std::string text = source_text(inst.src[i], type, inst.literal, acc);
        if (inst.sext >> place & 1) text = "sext(" + text + ")";
        const bool mix = type.type == Type::Mix;  // spells the bits of neg_hi as absolute values
        if ((mix ? inst.neg_hi : inst.abs) >> place & 1) text = "|" + text + "|";
        if (inst.neg >> place & 1 && (mix || inst.format != Format::Vop3p)) text = "-" + text;
        out.operand(text);
        ++place;
    }
}

std::string bits(const char* name, unsigned value, int count) {
    std::string text = std::string(name) + ":[";
    for (int i = 0; i < count; ++i) text += (i ? "," : "") + std::to_string(value >> i & 1);
    return text + "]";
}

std::string dpp_control(u16 control) {
    struct Named {
        u16 code;
        const char* text;
    };
    constexpr Named kNamed[] = {
        {0x130, "wave_shl:1"}, {0x134, "wave_rol:1"},      {0x138, "wave_shr:1"},   {0x13c, "wave_ror:1"},
        {0x140, "row_mirror"}, {0x141, "row_half_mirror"}, {0x142, "row_bcast:15"}, {0x143, "row_bcast:31"},
    };
    constexpr Named kAmounts[] = {
        {0x100, "row_shl:"}, {0x110, "row_shr:"}, {0x120, "row_ror:"}, {0x150, "row_newbcast:"}};
    for (const Named& named : kNamed)
        if (named.code == control) return named.text;
    for (const Named& named : kAmounts)
        if (named.code == (control & ~15)) return named.text + std::to_string(control & 15);
    std::string text = "quad_perm:[";
    for (int i = 0; i < 4; ++i) text += (i ? "," : "") + std::to_string(control >> 2 * i & 3);
    return text + "]";
}

void packed_modifiers(const Inst& inst, const Signature& types, Text& out) {
    int count = 0;
    for (int i = 0; i < types.sources; ++i) count += types.src[i].type != Type::Tied;
    const bool mix = types.src[0].type == Type::Mix;
    const unsigned all = (1u << count) - 1;
    if (inst.op_sel & all) out.modifier(bits("op_sel", inst.op_sel, count));
    if ((inst.op_sel_hi & all) != (mix ? 0 : all)) out.modifier(bits("op_sel_hi", inst.op_sel_hi, count));
    if (mix) return;
    if (inst.neg & all) out.modifier(bits("neg_lo", inst.neg, count));
    if (inst.neg_hi & all) out.modifier(bits("neg_hi", inst.neg_hi, count));
}

void matrix_modifiers(const Inst& inst, Text& out) {
    if (has(inst, "accvgpr")) return;
    if (inst.cbsz) out.modifier("cbsz:" + std::to_string(inst.cbsz));
    if (inst.abid) out.modifier("abid:" + std::to_string(inst.abid));
    const bool negates = has(inst, "v_mfma_f64");  // has signs where the others permute B
    if (inst.blgp) out.modifier(negates ? bits("neg", inst.blgp, 3) : "blgp:" + std::to_string(inst.blgp));
}

void vector_modifiers(const Inst& inst, const Signature& types, Text& out) {
    constexpr const char* kSelect[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "?"};
    constexpr const char* kUnused[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"};
    constexpr const char* kOmod[] = {"", "mul:2", "mul:4", "div:2"};
    const Format format = inst.row->format;
    if (format == Format::Vop3p) packed_modifiers(inst, types, out);
    else if (inst.op_sel && inst.vop3 && format != Format::Mai) {
        // One bit a source, then the destination's, whose place is fixed: it is the fourth bit.
        int count = 0;
        for (int i = 0; i < types.sources; ++i) count += types.src[i].type != Type::Tied;
        const unsigned selected = (inst.op_sel & ((1u << count) - 1)) | (inst.op_sel >> 3 & 1) << count;
        const bool whole = has(inst, "v_cvt_sr_");  // its bits 2 and 3 name a byte
        out.modifier(whole ? bits("op_sel", inst.op_sel, 4) : bits("op_sel", selected, count + 1));
    }
    if (format == Format::Mai) matrix_modifiers(inst, out);
    if (inst.clamp) out.modifier("clamp");
    if (inst.omod) out.modifier(kOmod[inst.omod]);
    if (inst.sdwa) {
        if (inst.format != Format::Vopc)
            out.modifier(std::string("dst_sel:") + kSelect[inst.dst_sel] + " dst_unused:" + kUnused[inst.dst_unused]);
        out.modifier(std::string("src0_sel:") + kSelect[inst.src_sel[0]]);
        if (inst.format != Format::Vop1) out.modifier(std::string("src1_sel:") + kSelect[inst.src_sel[1]]);
    }
    if (inst.dpp) {
        out.modifier(
            dpp_control(inst.dpp_ctrl) + " row_mask:" + hex(inst.row_mask) + " bank_mask:" + hex(inst.bank_mask));
        if (inst.bound_ctrl) out.modifier("bound_ctrl:0");
    }
}

std::string format_text(const Inst& inst) {
    constexpr const char* kData[] = {"INVALID",     "8",        "16",          "8_8",        "32",      "16_16",
                                     "10_11_11",    "11_11_10", "10_10_10_2",  "2_10_10_10", "8_8_8_8", "32_32",
                                     "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15"};
    constexpr const char* kNumber[] = {"UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT"};
    return std::string("format:[BUF_DATA_FORMAT_") + kData[inst.dfmt & 15] + ",BUF_NUM_FORMAT_" +
           kNumber[inst.nfmt & 7] + "]";
}

void cache_modifiers(const Inst& inst, Text& out) {
    if (inst.sc0) out.modifier("sc0");
    if (inst.nt) out.modifier("nt");
    if (inst.sc1) out.modifier("sc1");
}

// LDS instructions that take their address from M0, or none.
bool without_address(const Inst& inst) {
    for (const char* part : {"addtid", "ds_append", "ds_consume", "gws_sema_v", "gws_sema_p", "gws_sema_release_all"})
        if (has(inst, part)) return true;
    return false;
}

void memory_operands(const Inst& inst, const Signature& types, Text& out) {
    const char* data = inst.data_acc ? "a" : "v";
    const Format format = inst.row->format;
    if (is(inst, "ds_nop")) return;
    if (is(inst, "buffer_inv") || is(inst, "buffer_wbl2")) return cache_modifiers(inst, out);
    const bool buffer = format == Format::Mubuf || format == Format::Mtbuf;
    const bool returns = !(inst.row->flags & kReturns) || inst.sc0 || format == Format::Ds;
    const bool loads = types.dst.type != Type::None && returns && !inst.lds && !(buffer && types.sources);
    if (loads) out.operand(range(data, inst.dst, types.dst.dwords));
    const int address = format == Format::Ds        ? 1
                        : format == Format::Flat    ? 2
                        : format == Format::Global  ? 2 - inst.has_saddr
                        : format == Format::Scratch ? int(inst.has_vaddr)
                                                    : inst.idxen + inst.offen;
    int dwords = 0;
    for (int i = 0; i < types.sources; ++i) dwords += types.src[i].dwords;
    const std::string vaddr = address ? range("v", inst.vaddr, address) : "off";
    if (!std::strcmp(inst.row->name, "buffer_inv") || !std::strcmp(inst.row->name, "buffer_wbl2")) {
        // no operands
    } else if (buffer) {
        if (types.sources) out.operand(range(data, inst.vdata, dwords));
        out.operand(vaddr);
        out.operand(range("s", inst.saddr, 4));
        out.operand(scalar_text(inst.soffset, 1, 0));
    } else {
        const bool scalar_only = format == Format::Ds && without_address(inst);
        if (!scalar_only) out.operand(vaddr);
        if (format == Format::Ds) {
            if (types.sources) out.operand(range(data, inst.vdata, types.src[0].dwords));
            if (types.sources > 1) out.operand(range(data, inst.vdata2, types.src[1].dwords));
        } else {
            if (types.sources) out.operand(range(data, inst.vdata, dwords));
            if (format != Format::Flat)
                out.operand(inst.has_saddr ? scalar_text(inst.saddr, format == Format::Global ? 2 : 1, 0) : "off");
        }
    }
    if (format == Format::Mtbuf) out.modifier(format_text(inst));
    if (inst.idxen) out.modifier("idxen");
    if (inst.offen) out.modifier("offen");
    if (format == Format::Ds && (has(inst, "2_b") || has(inst, "2st64") || has(inst, "wrxchg2"))) {
        if (inst.offset & 0xff) out.modifier("offset0:" + std::to_string(inst.offset & 0xff));
        if (inst.offset >> 8) out.modifier("offset1:" + std::to_string(inst.offset >> 8));
    } else if (inst.offset) {
        out.modifier("offset:" + std::to_string(inst.offset));
    }
    cache_modifiers(inst, out);
    if (inst.lds) out.modifier("lds");
    if (inst.gds) out.modifier("gds");
}

bool has_short_form(Format format) {
    return format == Format::Vop1 || format == Format::Vop2 || format == Format::Vopc;
}

}  // namespace

std::string disassemble(const Inst& inst) {
    if (!inst.row) return "unknown instruction " + hex(inst.encoding[0]);
    const Signature& types = signature(*inst.row);
    Text out(inst.row->name);
    switch (inst.row->format) {
        case Format::Sop1:
        case Format::Sop2:
        case Format::Sopk:
        case Format::Sopc:
        case Format::Sopp:
        case Format::Smem: scalar_operands(inst, types, out); break;
        case Format::Vop1:
        case Format::Vop2:
        case Format::Vopc:
        case Format::Vop3:
        case Format::Vop3p:
        case Format::Mai:
            if (inst.sdwa) out.text_ += "_sdwa";
            if (inst.dpp) out.text_ += "_dpp";
            if (inst.vop3 && has_short_form(inst.row->format)) out.text_ += "_e64";
            vector_operands(inst, types, out);
            vector_modifiers(inst, types, out);
            break;
        default: memory_operands(inst, types, out);
    }
    return out.text_;
}

}  // namespace emu
