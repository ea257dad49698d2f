// SPDX-License-Identifier: MIT
#include "translate.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "operands.h"
#include "table.h"

namespace emu {
namespace {

constexpr u64 kWord = 4;

// --- operations that only say what is wrong ---------------------------------------------------------------------

[[noreturn]] void unknown_instruction(Wave& w, const Op& op) {
    fault(w, op, "these bits are no gfx942 instruction that the emulator knows; please report them");
}

[[noreturn]] void beyond_registers(Wave& w, const Op& op) {
    fault(
        w, op,
        "names a vector register beyond the " + std::to_string(w.vgpr_count) +
            " that the kernel's descriptor asks for");
}

[[noreturn]] void bad_branch(Wave& w, const Op& op) { fault(w, op, "branches to where no instruction begins"); }

// --- operands ---------------------------------------------------------------------------------------------------

class Translator {
public:
    Translator(Program& program) : program_(program) {}

    Op translate(const Inst& inst, u32 pc);

private:
    void scalar_format(Op&);
    void vector_format(Op&);
    void matrix_format(Op&);
    void memory_format(Op&);
    Operand vector(Op&, u16 number, TypedOperand, bool acc);
    Operand scalar(u16 code, TypedOperand, u32 literal);
    Operand source(Op&, u16 code, TypedOperand, bool acc);
    const u32* splat(u64 value, int dwords);
    void list_registers(Op&);

    Program& program_;
    std::map<std::pair<u64, int>, const u32*> splats_;
};

const u32* Translator::splat(u64 value, int dwords) {
    const u32*& place = splats_[{value, dwords}];
    if (!place) {
        const size_t words = size_t(dwords) * kLanes, slack = 64 / sizeof(u32);
        auto memory = std::make_unique<u32[]>(words + slack);
        auto* aligned = reinterpret_cast<u32*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63});
        for (int word = 0; word < dwords; ++word)
            std::fill_n(aligned + word * kLanes, kLanes, word < 2 ? static_cast<u32>(value >> 32 * word) : 0u);
        program_.splats.push_back(std::move(memory));
        place = aligned;
    }
    return place;
}

Operand Translator::vector(Op& op, u16 number, TypedOperand type, bool acc) {
    Operand operand;
    operand.kind = Operand::Vector;
    operand.type = type.type;
    operand.dwords = type.dwords;
    operand.index = acc ? program_.accum_offset + number : number;
    const u32 limit = acc ? program_.vgprs : std::min(program_.vgprs, std::max(program_.accum_offset, 1u));
    if (operand.index + type.dwords > limit) op.execute = beyond_registers;
    return operand;
}

Operand Translator::scalar(u16 code, TypedOperand type, u32 literal) {
    Operand operand;
    operand.type = type.type;
    operand.dwords = type.dwords;
    operand.index = code;
    if (const auto value = constant_value(code, type.type, literal)) {
        operand.kind = Operand::Constant;
        operand.value = *value;
    } else {
        operand.kind = code < kFirstInlineInteger ? Operand::Scalar : Operand::Special;
    }
    return operand;
}

// A source of a vector instruction: constants are spread over the lanes now rather than at every step.
Operand Translator::source(Op& op, u16 code, TypedOperand type, bool acc) {
    if (code >= kVgpr0) return vector(op, code - kVgpr0, type, acc);
    Operand operand = scalar(code, type, op.inst.literal);
    if (operand.kind == Operand::Constant) operand.splat = splat(operand.value, std::max<int>(type.dwords, 1));
    return operand;
}

// --- formats ----------------------------------------------------------------------------------------------------

void Translator::scalar_format(Op& op) {
    const Inst& inst = op.inst;
    const Signature& types = signature(*inst.row);
    if (types.dst.type != Type::None) op.dst = scalar(inst.dst, types.dst, 0);
    for (int i = 0; i < types.sources && inst.format != Format::Smem; ++i) {
        // SOPK's register operand, where it is a source, stands in the destination's field.
        const u16 code = inst.format == Format::Sopk ? inst.dst : inst.src[i];
        op.src[i] = types.src[i].type == Type::Tied ? op.dst : scalar(code, types.src[i], inst.literal);
    }
    if (inst.format == Format::Smem) {
        if (inst.row->flags & kReturns && !inst.sc0) op.dst = {};
        const bool buffer = std::strstr(inst.row->name, "buffer") != nullptr;
        op.saddr = scalar(inst.saddr, {buffer ? Type::B32 : Type::B64, static_cast<u8>(buffer ? 4 : 2)}, 0);
        if (inst.has_soffset) op.soffset = scalar(inst.soffset, {Type::B32, 1}, 0);
        if (types.sources) op.vdata = scalar(inst.dst, types.src[0], 0);
    }
}

u8 modifier_flags(const Inst& inst, int place) {
    u8 flags = 0;
    if (inst.neg >> place & 1) flags |= kNeg;
    if (inst.abs >> place & 1) flags |= kAbs;
    if (inst.op_sel >> place & 1) flags |= kHigh;
    if (inst.op_sel_hi >> place & 1) flags |= kHighForHigh;
    if (inst.neg_hi >> place & 1) flags |= kNegHigh;
    return flags;
}

bool sixteen_bits(Type type) {
    return type == Type::B16 || type == Type::I16 || type == Type::U16 || type == Type::F16 || type == Type::BF16;
}

bool packed(Type type) {
    return type == Type::PI16 || type == Type::PF16 || type == Type::PBF16 || type == Type::PB32 ||
           type == Type::PF32 || type == Type::Mix;
}

void Translator::vector_format(Op& op) {
    const Inst& inst = op.inst;
    const Row& row = *inst.row;
    const Signature& types = signature(row);
    const bool acc_mov = !std::strcmp(row.name, "v_accvgpr_mov_b32");
    op.plain = !inst.sdwa && !inst.dpp && !inst.clamp && !inst.omod && !sixteen_bits(types.dst.type);
    if (types.dst.type == Type::Mask || inst.dst_is_scalar) op.dst = scalar(inst.dst, types.dst, 0);
    else if (types.dst.type != Type::None) op.dst = vector(op, inst.dst, types.dst, acc_mov);
    op.preserve = types.dst.preserve;
    if (types.sdst.type != Type::None) op.sdst = scalar(inst.sdst, types.sdst, 0);
    int place = 0;
    for (int i = 0; i < types.sources; ++i) {
        const TypedOperand type = types.src[i];
        Operand& operand = op.src[i];
        switch (type.type) {
            case Type::Mask: operand = scalar(inst.src[i], type, 0); break;
            case Type::Literal: operand = source(op, inst.src[i], {types.dst.type, types.dst.dwords}, false); break;
            case Type::Tied:
                operand = vector(op, inst.dst, types.dst, false);
                operand.type = types.dst.type;
                break;
            default: operand = source(op, inst.src[i], type, acc_mov); break;
        }
        // A constant that v_fma_mix takes for a half is one: compilers write 1.0 there and mean it.
        if (type.type == Type::Mix && operand.kind == Operand::Constant && inst.op_sel_hi >> place & 1) {
            operand = source(op, inst.src[i], {Type::F16, 1}, false);
            operand.type = Type::Mix;
        }
        if (type.type == Type::Mask || type.type == Type::Literal) {
            if (inst.format == Format::Vop3 || inst.vop3) ++place;
            continue;
        }
        operand.flags = modifier_flags(inst, place++);
        const u8 usual = packed(operand.type) ? kHighForHigh : 0;
        const u8 relevant = packed(operand.type) ? 0xff : kNeg | kAbs | kHigh;
        // Constants of packed halves are 32-bit values whose upper half the selection may repeat: the long way does it.
        if ((operand.flags & relevant) != usual || sixteen_bits(operand.type) || operand.type == Type::Mix ||
            (packed(operand.type) && operand.kind != Operand::Vector && operand.dwords == 1))
            op.plain = false;
    }
}

void Translator::matrix_format(Op& op) {
    const Inst& inst = op.inst;
    const Signature& types = signature(*inst.row);
    const bool read = !std::strcmp(inst.row->name, "v_accvgpr_read_b32");
    const bool write = !std::strcmp(inst.row->name, "v_accvgpr_write_b32");
    const bool sparse = !std::strncmp(inst.row->name, "v_smfmac", 8);
    const bool acc_cd = inst.acc & 0x80;
    op.plain = true;
    if (types.dst.type != Type::None) op.dst = vector(op, inst.dst, types.dst, write || (acc_cd && !read));
    for (int i = 0; i < types.sources; ++i) {
        const bool acc = read ? true : write ? false : i < 2 ? (inst.acc >> i & 1) : acc_cd && !sparse;
        if (types.src[i].type == Type::Tied) op.src[i] = op.dst;
        else op.src[i] = source(op, inst.src[i], types.src[i], acc);
    }
}

// LDS instructions that take their address from M0, or none at all.
bool without_address(const char* name) {
    for (const char* part : {"addtid", "ds_append", "ds_consume", "ds_nop", "ds_gws"})
        if (std::strstr(name, part)) return true;
    return false;
}

void Translator::memory_format(Op& op) {
    const Inst& inst = op.inst;
    const Row& row = *inst.row;
    if (!std::strcmp(row.name, "buffer_inv") || !std::strcmp(row.name, "buffer_wbl2")) return;
    const Signature& types = signature(row);
    auto registers = [](int dwords) { return TypedOperand{Type::B32, static_cast<u8>(dwords)}; };
    int address = 0, base = 0;
    switch (row.format) {
        case Format::Ds: address = !without_address(row.name); break;
        case Format::Flat: address = 2; break;
        case Format::Global:
            address = inst.has_saddr ? 1 : 2;
            base = 2;
            break;
        case Format::Scratch:
            address = inst.has_vaddr;
            base = 1;
            break;
        default: address = inst.offen + inst.idxen; base = 4;
    }
    if (address) op.vaddr = vector(op, inst.vaddr, registers(address), false);
    if (base && inst.has_saddr) op.saddr = scalar(inst.saddr, registers(base), 0);
    if (inst.has_soffset) op.soffset = scalar(inst.soffset, registers(1), 0);
    const bool ds = row.format == Format::Ds;
    int data = 0;
    for (int i = 0; i < types.sources; ++i) data += types.src[i].dwords;
    if (types.sources) {
        op.vdata = vector(
            op, inst.vdata, {types.src[0].type, ds ? types.src[0].dwords : static_cast<u8>(data)}, inst.data_acc);
        if (ds && types.sources > 1) op.vdata2 = vector(op, inst.vdata2, types.src[1], inst.data_acc);
    }
    const bool returns = !(row.flags & kReturns) || ds || inst.sc0;
    if (types.dst.type != Type::None && returns && !inst.lds) op.dst = vector(op, inst.dst, types.dst, inst.data_acc);
}

// --- which registers it touches, for the checks -----------------------------------------------------------------

void Translator::list_registers(Op& op) {
    auto add = [](const Operand& operand, Registers* list, u8& count, int room) {
        if (!operand.dwords || count == room) return;
        if (operand.kind == Operand::Vector) list[count++] = {Registers::Vector, operand.dwords, operand.index};
        else if (operand.kind == Operand::Scalar) list[count++] = {Registers::Scalar, operand.dwords, operand.index};
    };
    for (const Operand& operand : op.src) add(operand, op.reads, op.read_count, 8);
    for (const Operand* operand : {&op.vaddr, &op.vdata, &op.vdata2, &op.saddr, &op.soffset})
        add(*operand, op.reads, op.read_count, 8);
    add(op.dst, op.writes, op.write_count, 4);
    add(op.sdst, op.writes, op.write_count, 4);
    if (!std::strcmp(op.inst.row->name, "v_swap_b32")) {  // writes its source and reads its destination
        add(op.src[0], op.writes, op.write_count, 4);
        add(op.dst, op.reads, op.read_count, 8);
    }
}

Op Translator::translate(const Inst& inst, u32 pc) {
    Op op;
    op.inst = inst;
    op.pc = pc;
    if (!inst.row) {
        op.execute = unknown_instruction;
        return op;
    }
    op.execute = inst.row->execute ? inst.row->execute : run_lanes;
    op.lanes = inst.row->lanes;
    switch (inst.row->format) {
        case Format::Sop1:
        case Format::Sop2:
        case Format::Sopk:
        case Format::Sopc:
        case Format::Sopp:
        case Format::Smem: scalar_format(op); break;
        case Format::Vop1:
        case Format::Vop2:
        case Format::Vopc:
        case Format::Vop3:
        case Format::Vop3p: vector_format(op); break;
        case Format::Mai: matrix_format(op); break;
        default: memory_format(op);
    }
    list_registers(op);
    return op;
}

}  // namespace

u32 index_of(const Program& program, u64 address) {
    const u64 offset = address - program.text;
    if (offset >= program.bytes || offset % kWord) return kNoOp;
    return program.index_of_word[offset / kWord];
}

std::unique_ptr<Program> translate(
    const void* text, u64 bytes, const std::vector<CodeRange>& ranges, u32 vgprs, u32 accum_offset) {
    auto program = std::make_unique<Program>();
    program->text = reinterpret_cast<u64>(text);
    program->bytes = bytes;
    program->vgprs = vgprs;
    program->accum_offset = accum_offset;
    program->index_of_word.assign(bytes / kWord, kNoOp);
    Translator translator(*program);
    const auto* words = static_cast<const u32*>(text);
    for (const CodeRange& range : ranges) {
        for (u64 pc = range.begin; pc + kWord <= std::min(range.end, bytes);) {
            if (program->index_of_word[pc / kWord] != kNoOp) break;  // ranges that overlap
            Inst inst;
            decode(words + pc / kWord, static_cast<u32>((std::min(range.end, bytes) - pc) / kWord), inst);
            program->index_of_word[pc / kWord] = static_cast<u32>(program->ops.size());
            program->ops.push_back(translator.translate(inst, static_cast<u32>(pc)));
            pc += inst.words * kWord;
        }
        // Whoever runs past the end of a function meets this.
        Op end;
        end.execute = unknown_instruction;
        end.pc = static_cast<u32>(range.end);
        program->ops.push_back(end);
    }
    for (size_t i = 0; i < program->ops.size(); ++i) {
        Op& op = program->ops[i];
        op.index = static_cast<u32>(i);
        if (!op.inst.row || !(op.inst.row->flags & kBranch)) continue;
        const u64 target = op.pc + kWord * op.inst.words + kWord * static_cast<i64>(op.inst.simm);
        op.target = index_of(*program, program->text + target);
        if (op.target == kNoOp) op.execute = bad_branch;
    }
    return program;
}

}  // namespace emu
