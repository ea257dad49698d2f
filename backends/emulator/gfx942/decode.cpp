// SPDX-License-Identifier: MIT
// Bits to fields. One function a microcode format; the format is told from the leading bits (ISA guide, chapter
// "Microcode Formats"; gfx940's changes to the memory formats as LLVM encodes them).
#include <cstring>

#include "table.h"
#include "wave.h"

namespace emu {
namespace {

constexpr u16 kVop3OfVop2 = 0x100, kVop3OfVop1 = 0x140, kVop3Native = 0x1c0;
constexpr u16 kSdwaCode = 249, kDppCode = 250, kLiteralCode = 255;
constexpr u16 kSetregImm32 = 20;

u32 field(u32 word, int high, int low) { return word >> low & ((u64{1} << (high - low + 1)) - 1); }

bool is_literal_last(const Inst& inst) {
    const Signature& types = signature(*inst.row);
    for (int i = 0; i < types.sources; ++i)
        if (types.src[i].type == Type::Literal) return true;
    return false;
}

bool take_literal(const u32* code, u32 available, Inst& inst) {
    if (available < 2) return false;
    inst.has_literal = true;
    inst.literal = code[1];
    inst.words = 2;
    return true;
}

// --- scalar -----------------------------------------------------------------------------------------------------

bool sop(const u32* code, u32 available, Inst& inst) {
    const u32 word = code[0];
    inst.dst = field(word, 22, 16);
    inst.dst_is_scalar = true;
    inst.src[0] = field(word, 7, 0);
    inst.src[1] = field(word, 15, 8);
    const u32 top = word >> 23;
    if (top == 0b101111101) {
        inst.format = Format::Sop1;
        inst.opcode = field(word, 15, 8);
        inst.src[1] = 0;
    } else if (top == 0b101111110) {
        inst.format = Format::Sopc;
        inst.opcode = field(word, 22, 16);
    } else if (top == 0b101111111) {
        inst.format = Format::Sopp;
        inst.opcode = field(word, 22, 16);
        inst.simm = static_cast<i16>(word);
    } else if (word >> 28 == 0b1011) {
        inst.format = Format::Sopk;
        inst.opcode = field(word, 27, 23);
        inst.simm = static_cast<i16>(word);
        if (inst.opcode == kSetregImm32 && !take_literal(code, available, inst)) return false;
    } else {
        inst.format = Format::Sop2;
        inst.opcode = field(word, 29, 23);
    }
    inst.row = find_row(inst.format, inst.opcode);
    if (inst.format == Format::Sop1 || inst.format == Format::Sop2 || inst.format == Format::Sopc) {
        const bool second = inst.format != Format::Sop1;
        if (inst.src[0] == kLiteralCode || (second && inst.src[1] == kLiteralCode))
            if (!take_literal(code, available, inst)) return false;
    }
    return inst.row != nullptr;
}

bool smem(const u32* code, u32 available, Inst& inst) {
    inst.format = Format::Smem;
    inst.words = 2;
    if (available < 2) return false;
    inst.opcode = field(code[0], 25, 18);
    inst.dst = field(code[0], 12, 6);
    inst.dst_is_scalar = true;
    inst.saddr = field(code[0], 5, 0) * 2;
    inst.has_saddr = true;
    const bool immediate = field(code[0], 17, 17), with_soffset = field(code[0], 14, 14);
    inst.sc0 = field(code[0], 16, 16);
    if (immediate) inst.offset = static_cast<i32>(sign_extend(field(code[1], 20, 0), 21));
    inst.has_soffset = with_soffset || !immediate;
    inst.soffset = with_soffset ? field(code[1], 31, 25) : field(code[1], 6, 0);
    inst.row = find_row(inst.format, inst.opcode);
    return inst.row != nullptr;
}

// --- vector arithmetic ------------------------------------------------------------------------------------------

// Destinations that are scalar although the instruction is a vector one.
bool writes_scalar(const Row& row) {
    return row.format == Format::Vopc || !std::strcmp(row.name, "v_readfirstlane_b32") ||
           !std::strcmp(row.name, "v_readlane_b32");
}

bool sdwa(const u32* code, u32 available, Inst& inst) {
    if (available < 2) return false;
    const u32 word = code[1];
    inst.sdwa = true;
    inst.words = 2;
    inst.encoding[1] = word;
    const bool scalar0 = field(word, 23, 23), scalar1 = field(word, 31, 31);
    inst.src[0] = field(word, 7, 0) + (scalar0 ? 0 : kVgpr0);
    if (scalar1) inst.src[1] = inst.src[1] - kVgpr0;
    if (inst.format == Format::Vopc) {
        inst.dst = field(word, 15, 15) ? field(word, 14, 8) : u32{kVcc};
    } else {
        inst.dst_sel = field(word, 10, 8);
        inst.dst_unused = field(word, 12, 11);
        inst.clamp = field(word, 13, 13);
        inst.omod = field(word, 15, 14);
    }
    inst.src_sel[0] = field(word, 18, 16);
    inst.src_sel[1] = field(word, 26, 24);
    inst.sext = field(word, 19, 19) | field(word, 27, 27) << 1;
    inst.neg = field(word, 20, 20) | field(word, 28, 28) << 1;
    inst.abs = field(word, 21, 21) | field(word, 29, 29) << 1;
    return true;
}

bool dpp(const u32* code, u32 available, Inst& inst) {
    if (available < 2) return false;
    const u32 word = code[1];
    inst.dpp = true;
    inst.words = 2;
    inst.encoding[1] = word;
    inst.src[0] = field(word, 7, 0) + kVgpr0;
    inst.dpp_ctrl = field(word, 16, 8);
    inst.bound_ctrl = field(word, 19, 19);
    inst.neg = field(word, 20, 20) | field(word, 22, 22) << 1;
    inst.abs = field(word, 21, 21) | field(word, 23, 23) << 1;
    inst.bank_mask = field(word, 27, 24);
    inst.row_mask = field(word, 31, 28);
    return true;
}

// Puts encoded sources, in the order of the fields, into the order of the signature.
void arrange_sources(Inst& inst, const u16* encoded) {
    const Signature& types = signature(*inst.row);
    int taken = 0;
    const bool own_mask = inst.vop3;
    for (int i = 0; i < types.sources; ++i) {
        switch (types.src[i].type) {
            case Type::Mask: inst.src[i] = own_mask ? encoded[taken++] : u16{kVcc}; break;
            case Type::Literal: inst.src[i] = kLiteralCode; break;
            case Type::Tied: inst.src[i] = inst.dst + kVgpr0; break;
            default: inst.src[i] = encoded[taken++];
        }
    }
}

bool vop_short(const u32* code, u32 available, Inst& inst) {
    const u32 word = code[0];
    inst.src[0] = field(word, 8, 0);
    inst.src[1] = field(word, 16, 9) + kVgpr0;
    inst.dst = field(word, 24, 17);
    if (word >> 25 == 0b0111111) {
        inst.format = Format::Vop1;
        inst.opcode = field(word, 16, 9);
    } else if (word >> 25 == 0b0111110) {
        inst.format = Format::Vopc;
        inst.opcode = field(word, 24, 17);
        inst.dst = kVcc;
    } else {
        inst.format = Format::Vop2;
        inst.opcode = field(word, 30, 25);
    }
    inst.row = find_row(inst.format, inst.opcode);
    if (inst.src[0] == kSdwaCode) {
        if (!sdwa(code, available, inst)) return false;
    } else if (inst.src[0] == kDppCode) {
        if (!dpp(code, available, inst)) return false;
    } else if (inst.src[0] == kLiteralCode || (inst.row && is_literal_last(inst))) {
        if (!take_literal(code, available, inst)) return false;
    }
    if (!inst.row) return false;
    inst.dst_is_scalar = writes_scalar(*inst.row);
    inst.sdst = kVcc;
    const u16 encoded[3] = {inst.src[0], inst.src[1], 0};
    arrange_sources(inst, encoded);
    return true;
}

bool vop3(const u32* code, u32 available, Inst& inst) {
    inst.format = Format::Vop3;
    inst.vop3 = true;
    inst.words = 2;
    if (available < 2) return false;
    inst.opcode = field(code[0], 25, 16);
    inst.dst = field(code[0], 7, 0);
    if (inst.opcode < kVop3OfVop2) inst.row = find_row(inst.format = Format::Vopc, inst.opcode);
    else if (inst.opcode < kVop3OfVop1) inst.row = find_row(inst.format = Format::Vop2, inst.opcode - kVop3OfVop2);
    else if (inst.opcode < kVop3Native) inst.row = find_row(inst.format = Format::Vop1, inst.opcode - kVop3OfVop1);
    else inst.row = find_row(Format::Vop3, inst.opcode);
    if (!inst.row) return false;
    const u16 encoded[3] = {
        static_cast<u16>(field(code[1], 8, 0)), static_cast<u16>(field(code[1], 17, 9)),
        static_cast<u16>(field(code[1], 26, 18))};
    inst.neg = field(code[1], 31, 29);
    inst.omod = field(code[1], 28, 27);
    inst.clamp = field(code[0], 15, 15);
    if (signature(*inst.row).sdst.type == Type::Mask) {
        inst.sdst = field(code[0], 14, 8);  // VOP3B
    } else {
        inst.abs = field(code[0], 10, 8);
        inst.op_sel = field(code[0], 14, 11);
    }
    inst.dst_is_scalar = writes_scalar(*inst.row);
    arrange_sources(inst, encoded);
    return true;
}

bool vop3p(const u32* code, u32 available, Inst& inst) {
    inst.format = Format::Vop3p;
    inst.words = 2;
    if (available < 2) return false;
    inst.opcode = field(code[0], 22, 16);
    inst.dst = field(code[0], 7, 0);
    inst.vop3 = true;
    inst.row = find_row(Format::Vop3p, inst.opcode);
    const u16 encoded[3] = {
        static_cast<u16>(field(code[1], 8, 0)), static_cast<u16>(field(code[1], 17, 9)),
        static_cast<u16>(field(code[1], 26, 18))};
    if (inst.row) {
        inst.neg = field(code[1], 31, 29);
        inst.neg_hi = field(code[0], 10, 8);
        inst.op_sel = field(code[0], 13, 11);
        inst.op_sel_hi = field(code[1], 28, 27) | field(code[0], 14, 14) << 2;
        inst.clamp = field(code[0], 15, 15);
    } else {
        inst.row = find_row(inst.format = Format::Mai, inst.opcode);
        if (!inst.row) return false;
        inst.cbsz = field(code[0], 10, 8);
        inst.abid = field(code[0], 14, 11);
        inst.blgp = field(code[1], 31, 29);
        inst.acc = field(code[1], 28, 27);
        if (field(code[0], 15, 15)) inst.acc |= 0x80;
    }
    arrange_sources(inst, encoded);
    return true;
}

// --- memory -----------------------------------------------------------------------------------------------------

bool ds(const u32* code, u32 available, Inst& inst) {
    inst.format = Format::Ds;
    inst.words = 2;
    if (available < 2) return false;
    inst.opcode = field(code[0], 24, 17);
    inst.gds = field(code[0], 16, 16);
    inst.offset = static_cast<i32>(field(code[0], 15, 0));
    inst.data_acc = field(code[0], 25, 25);
    inst.vaddr = field(code[1], 7, 0);
    inst.vdata = field(code[1], 15, 8);
    inst.vdata2 = field(code[1], 23, 16);
    inst.dst = field(code[1], 31, 24);
    inst.row = find_row(inst.format, inst.opcode);
    return inst.row != nullptr;
}

bool flat(const u32* code, u32 available, Inst& inst) {
    constexpr u16 kNoSaddr = 0x7f;
    inst.words = 2;
    if (available < 2) return false;
    const u32 segment = field(code[0], 15, 14);
    if (segment == 3) return false;
    inst.format = segment == 0 ? Format::Flat : segment == 1 ? Format::Scratch : Format::Global;
    inst.opcode = field(code[0], 24, 18);
    inst.offset = segment == 0 ? static_cast<i32>(field(code[0], 11, 0))
                               : static_cast<i32>(sign_extend(field(code[0], 12, 0), 13));
    inst.sc0 = field(code[0], 16, 16);
    inst.nt = field(code[0], 17, 17);
    inst.sc1 = field(code[0], 25, 25);
    inst.vaddr = field(code[1], 7, 0);
    inst.vdata = field(code[1], 15, 8);
    inst.saddr = field(code[1], 22, 16);
    inst.has_saddr = segment != 0 && inst.saddr != kNoSaddr;
    inst.data_acc = field(code[1], 23, 23);
    inst.dst = field(code[1], 31, 24);
    inst.has_vaddr = segment != 1 || field(code[0], 13, 13);
    inst.row = find_row(inst.format, inst.opcode);
    return inst.row != nullptr;
}

bool buffer(const u32* code, u32 available, Inst& inst) {
    const bool typed = code[0] >> 26 == 0b111010;
    inst.format = typed ? Format::Mtbuf : Format::Mubuf;
    inst.words = 2;
    if (available < 2) return false;
    inst.offset = static_cast<i32>(field(code[0], 11, 0));
    inst.offen = field(code[0], 12, 12);
    inst.idxen = field(code[0], 13, 13);
    inst.sc0 = field(code[0], 14, 14);
    if (typed) {
        inst.opcode = field(code[0], 18, 15);
        inst.dfmt = field(code[0], 22, 19);
        inst.nfmt = field(code[0], 25, 23);
        inst.sc1 = field(code[1], 21, 21);
        inst.nt = field(code[1], 22, 22);
    } else {
        inst.opcode = field(code[0], 24, 18);
        inst.sc1 = field(code[0], 15, 15);
        inst.lds = field(code[0], 16, 16);
        inst.nt = field(code[0], 17, 17);
    }
    inst.vaddr = field(code[1], 7, 0);
    inst.has_vaddr = inst.offen || inst.idxen;
    inst.vdata = inst.dst = field(code[1], 15, 8);
    inst.saddr = field(code[1], 20, 16) * 4;
    inst.has_saddr = true;
    inst.data_acc = field(code[1], 23, 23);
    inst.soffset = field(code[1], 31, 24);
    inst.has_soffset = true;
    inst.row = find_row(inst.format, inst.opcode);
    return inst.row != nullptr;
}

bool by_format(const u32* code, u32 available, Inst& inst) {
    const u32 word = code[0];
    if (!(word >> 31)) return vop_short(code, available, inst);
    if (word >> 30 == 0b10) return sop(code, available, inst);
    if (word >> 23 == 0b110100111) return vop3p(code, available, inst);
    switch (word >> 26) {
        case 0b110000: return smem(code, available, inst);
        case 0b110100: return vop3(code, available, inst);
        case 0b110110: return ds(code, available, inst);
        case 0b110111: return flat(code, available, inst);
        case 0b111000:
        case 0b111010: return buffer(code, available, inst);
        default: return false;
    }
}

}  // namespace

bool decode(const u32* code, u32 available, Inst& inst) {
    inst = Inst{};
    if (!available) return false;
    inst.encoding[0] = code[0];
    const bool known = by_format(code, available, inst);
    if (inst.words > available) inst.words = 1;
    for (int i = 1; i < inst.words; ++i) inst.encoding[i] = code[i];
    return known;
}

}  // namespace emu
