// SPDX-License-Identifier: MIT
// An instruction three times: the table's row (what the ISA says of it), decoded (its fields), translated (ready to run).
//
// Encodings: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "Microcode Formats".
#pragma once

#include <string>
#include <string_view>

#include "types.h"

namespace emu {

struct Wave;
struct Op;
struct Lanes;

enum class Format : u8 {
    Sop1,
    Sop2,
    Sopk,
    Sopc,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Mai,  // Vop3: instructions that have no shorter form; Mai: VOP3P with matrix fields
    Ds,
    Flat,
    Global,
    Scratch,
    Mubuf,
    Mtbuf,
};

const char* name(Format);

/// How an operand's bits are to be read: decides inline constants, modifiers and how many registers it takes.
enum class Type : u8 {
    None,
    B16,
    I16,
    U16,
    F16,
    BF16,  // in the low half of a register
    B32,
    I32,
    U32,
    F32,
    B64,
    I64,
    U64,
    F64,
    PI16,
    PF16,
    PBF16,  // two halves of a register (VOP3P): op_sel, op_sel_hi and (floats) neg_lo, neg_hi apply
    PB32,
    PF32,     // two registers, likewise
    Mix,      // v_fma_mix*: an F32, or with op_sel_hi either half of a register as F16
    Mask,     // one bit a lane: a pair of scalar registers
    Literal,  // the constant K of v_fmamk and v_fmaak
    Tied,     // the destination's old value (v_fmac)
};

bool is_float(Type);

struct TypedOperand {
    Type type = Type::None;
    u8 dwords = 0;
    bool preserve = false;  // 16-bit destination that leaves the other half alone
};

using Execute = void (*)(Wave&, const Op&);
using LaneFunction = void (*)(Lanes&);

/// What an instruction does with time and registers beyond its signature.
enum RowFlags : u32 {
    kTranscendental = 1u << 0,  // quarter rate
    kBranch = 1u << 1,
    kAtomic = 1u << 3,
    kStore = 1u << 4,
    kLoad = 1u << 5,
    kReturns = 1u << 6,      // an atomic that can return the old value (with sc0, or a DS *_rtn)
    kDoubleRate = 1u << 9,   // 64-bit arithmetic or packed f32
    kRawSources = 1u << 10,  // sees denormals whatever MODE says
};

/// One row of the instruction table.
struct Row {
    const char* name;  // LLVM's mnemonic, without _e32/_e64
    Format format;
    u16 opcode;             // within its format; VOP1, VOP2 and VOPC rows also cover their VOP3 form
    const char* signature;  // "f32=f32,f32": destination(s) = sources; see table.cpp
    LaneFunction lanes;     // vector arithmetic: computes all 64 lanes; null for the others
    Execute execute;        // everything else
    u32 flags;
    u8 passes;  // matrix instructions: passes of 4 cycles (ISA guide, dependency tables)
};

struct Signature {
    TypedOperand dst, sdst, src[4];
    u8 sources = 0;
};

/// Fields of one instruction, as encoded.
struct Inst {
    const Row* row = nullptr;      // null: not in the table
    Format format = Format::Sopp;  // of the row; what the bits were is in the flags below
    bool vop3 = false;             // a VOP1/2/C row in its 64-bit form
    bool sdwa = false, dpp = false;
    u16 opcode = 0;
    u8 words = 1;
    u32 encoding[3] = {};
    u32 literal = 0;
    bool has_literal = false;
    u16 dst = 0, sdst = 0;  // VGPR number or scalar code
    bool dst_is_scalar = false;
    u16 src[4] = {};  // 9-bit source codes (256 + n: VGPR n), in table order
    // arithmetic modifiers, one bit a source
    u8 neg = 0, abs = 0, neg_hi = 0, op_sel = 0, op_sel_hi = 7, omod = 0;
    bool clamp = false;
    // SDWA
    u8 dst_sel = 6, dst_unused = 0, src_sel[2] = {6, 6};
    u8 sext = 0;  // one bit a source
    // DPP
    u16 dpp_ctrl = 0;
    u8 row_mask = 15, bank_mask = 15;
    bool bound_ctrl = false;
    // matrix
    u8 cbsz = 0, abid = 0, blgp = 0;
    u8 acc = 0;  // bit i: source i is an AGPR; bit 7: destination (and source 2) is
    // scalar
    i32 simm = 0;
    // memory
    i32 offset = 0;  // DS: offset0 | offset1 << 8
    u16 saddr = 0, vaddr = 0, vdata = 0, vdata2 = 0, soffset = 0;
    bool has_saddr = false, has_soffset = false, has_vaddr = true;
    bool sc0 = false, sc1 = false, nt = false, lds = false, gds = false, idxen = false, offen = false;
    bool data_acc = false;  // vdata (and the destination) are AGPRs
    u8 dfmt = 0, nfmt = 0;  // MTBUF
};

/// Decodes one instruction; `available` is how many dwords there are. Returns false for bits that are no instruction of
/// the table (`inst.words` and the encoding are still filled in, as far as the format is known).
bool decode(const u32* code, u32 available, Inst& inst);

/// LLVM's spelling of it, operands included.
std::string disassemble(const Inst&);

struct Operand {
    enum Kind : u8 { Absent, Vector, Scalar, Constant, Special };
    Kind kind = Absent;
    Type type = Type::None;
    u8 dwords = 0;
    u8 flags = 0;                // kNeg | kAbs | … below, resolved for this source
    u16 index = 0;               // Vector: physical register; Scalar/Special: source code
    const u32* splat = nullptr;  // Constant: 64 (or 128) words, one a lane
    u64 value = 0;               // Constant
};

enum OperandFlags : u8 { kNeg = 1, kAbs = 2, kHigh = 4 /* op_sel */, kHighForHigh = 8 /* op_sel_hi */, kNegHigh = 16 };

/// Consecutive registers that an instruction reads or writes.
struct Registers {
    enum File : u8 { Vector, Scalar };
    File file;
    u8 count;
    u16 first;
};

/// Translated once per kernel: resolved operands and the function that runs it.
struct Op {
    Execute execute = nullptr;
    LaneFunction lanes = nullptr;
    Operand dst, sdst, src[4];
    Operand vaddr, vdata, vdata2, saddr, soffset;  // memory
    u32 index = 0;                                 // in the program
    u32 target = 0;                                // branches: index to go to
    bool plain = false;                            // vector arithmetic without any modifier: the short way
    bool preserve = false;                         // a 16-bit result leaves the other half of its register alone
    u8 read_count = 0, write_count = 0;
    Registers reads[8] = {}, writes[4] = {};
    Inst inst;
    u32 pc = 0;  // byte offset from the start of .text
};

}  // namespace emu
