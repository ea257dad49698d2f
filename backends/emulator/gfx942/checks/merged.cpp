// SPDX-License-Identifier: MIT
#include "merged.h"

#include <algorithm>
#include <string_view>

namespace emu::checks {
namespace {

constexpr u32 kNear = 200;  // operations

bool begins(const Op& op, std::string_view prefix) {
    return std::string_view(op.inst.row->name).substr(0, prefix.size()) == prefix;
}

template <class... Prefixes>
bool begins_any(const Op& op, Prefixes... prefixes) {
    return (begins(op, prefixes) || ...);
}

bool overlap(const Registers& a, const Registers& b) {
    return a.file == b.file && a.first < b.first + b.count && b.first < a.first + a.count;
}

Registers registers_of(const Operand& operand) {
    return {Registers::Vector, operand.kind == Operand::Vector ? operand.dwords : u8{0}, operand.index};
}

bool constant_is(const Operand& operand, std::initializer_list<u64> values) {
    return operand.kind == Operand::Constant &&
           std::find(values.begin(), values.end(), operand.value & 0xffffffffu) != values.end();
}

// Instructions by which a byte or a short is taken out of a register.
bool takes_apart(const Op& op) {
    if (op.inst.sdwa) return true;
    if (begins_any(op, "v_bfe_", "v_perm_b32", "v_alignbyte", "v_alignbit", "v_cvt_f32_ubyte")) return true;
    if (begins_any(op, "v_lshrrev_b32", "v_ashrrev_i32", "v_lshrrev_b64", "v_lshlrev_b32"))
        return constant_is(op.src[0], {8, 16, 24, 40, 48, 56});
    if (begins(op, "v_and_b32"))
        return constant_is(op.src[0], {1, 0xff, 0xffff, 0xff00, 0x0101}) || constant_is(op.src[1], {1, 0xff, 0xffff});
    const std::string_view name = op.inst.row->name;
    return name.find("store_byte") != name.npos || name.find("store_short") != name.npos ||
           begins_any(op, "ds_write_b8", "ds_write_b16") || name.find("_u16") != name.npos ||
           name.find("_i16") != name.npos;
}

bool puts_together(const Op& op) {
    return op.inst.sdwa || begins_any(
                               op, "v_perm_b32", "v_lshl_or_b32", "v_or_b32", "v_or3_b32", "v_and_or_b32", "v_bfi_b32",
                               "v_pack_b32", "v_lshl_add_u32", "v_alignb");
}

bool ends_block(const Op& op) {
    return !op.inst.row || op.inst.row->flags & kBranch || begins_any(op, "s_endpgm", "s_setpc", "s_swappc");
}

bool reads(const Op& op, const Registers& registers) {
    return std::any_of(
        op.reads, op.reads + op.read_count, [&](const Registers& each) { return overlap(each, registers); });
}

bool writes(const Op& op, const Registers& registers) {
    return std::any_of(
        op.writes, op.writes + op.write_count, [&](const Registers& each) { return overlap(each, registers); });
}

bool is_taken_apart(const std::vector<Op>& ops, u32 index) {
    const Registers loaded = registers_of(ops[index].dst);
    for (u32 i = index + 1; i < ops.size() && i < index + kNear && !ends_block(ops[i]); ++i) {
        if (reads(ops[i], loaded) && takes_apart(ops[i])) return true;
        if (loaded.count == 1 && writes(ops[i], loaded)) break;
    }
    return false;
}

bool same(const Operand& a, const Operand& b) {
    return a.kind == b.kind && a.index == b.index && a.dwords == b.dwords && a.value == b.value;
}

/// Whether both are loads whose addresses are spelt alike.
bool spelt_alike(const Op& a, const Op& b) {
    return b.inst.row && a.inst.row->format == b.inst.row->format && a.inst.offset == b.inst.offset &&
           registers_of(b.dst).count && same(a.vaddr, b.vaddr) && same(a.saddr, b.saddr);
}

bool moves_address(const Op& op, const Op& load) {
    const Registers scalar{
        Registers::Scalar, load.saddr.kind == Operand::Scalar ? load.saddr.dwords : u8{0}, load.saddr.index};
    return writes(op, registers_of(load.vaddr)) || writes(op, scalar);
}

/// Whether another load from the same place is taken apart: a compiler that merges bytes may read some of them twice.
bool is_taken_apart_nearby(const std::vector<Op>& ops, u32 index) {
    const Op& load = ops[index];
    auto shows = [&](u32 i) { return spelt_alike(load, ops[i]) && is_taken_apart(ops, i); };
    for (u32 i = index; i-- > 0 && i + kNear > index && !ends_block(ops[i]) && !moves_address(ops[i], load);)
        if (shows(i)) return true;
    for (u32 i = index + 1; i < ops.size() && i < index + kNear && !ends_block(ops[i]); ++i) {
        if (moves_address(ops[i - 1], load)) return false;
        if (shows(i)) return true;
    }
    return false;
}

}  // namespace

bool moves_pieces(const std::vector<Op>& ops, u32 index) {
    const Op& op = ops[index];
    if (registers_of(op.dst).count) return is_taken_apart(ops, index) || is_taken_apart_nearby(ops, index);
    const Registers stored = registers_of(op.vdata);
    for (u32 i = index; stored.count && i-- > 0 && i + kNear > index && !ends_block(ops[i]);)
        if (writes(ops[i], stored)) return puts_together(ops[i]);
    return false;
}

}  // namespace emu::checks
