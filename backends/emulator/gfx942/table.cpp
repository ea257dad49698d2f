// SPDX-License-Identifier: MIT
#include "table.h"

#include <stdexcept>
#include <unordered_map>

namespace emu {
namespace {

using Rows = std::span<const Row> (*)();
constexpr Rows kLists[] = {
    salu_rows,           salu_bits_rows,    salu_flow_rows,   smem_rows,      smem_atomic_rows,
    vop_move_rows,       vop_int_rows,      vop_int16_rows,   vop_int64_rows, vop_f32_rows,
    vop_f16_rows,        vop_f64_rows,      vop_convert_rows, vop_fp8_rows,   vop_transcendental_rows,
    vop_cross_lane_rows, vop_division_rows, vop_sad_rows,     vop3p_rows,     vopc_int_rows,
    vopc_float_rows,     mfma_rows,         smfmac_rows,      ds_rows,        ds_atomic_rows,
    ds_cross_lane_rows,  flat_rows,         flat_atomic_rows, buffer_rows,    buffer_format_rows,
};

struct Named {
    std::string_view name;
    Type type;
    u8 dwords;
};
constexpr Named kTypes[] = {
    {"b16", Type::B16, 1},   {"i16", Type::I16, 1},   {"u16", Type::U16, 1},   {"f16", Type::F16, 1},
    {"bf16", Type::BF16, 1}, {"b32", Type::B32, 1},   {"i32", Type::I32, 1},   {"u32", Type::U32, 1},
    {"f32", Type::F32, 1},   {"b64", Type::B64, 2},   {"i64", Type::I64, 2},   {"u64", Type::U64, 2},
    {"f64", Type::F64, 2},   {"pi16", Type::PI16, 1}, {"pf16", Type::PF16, 1}, {"pbf16", Type::PBF16, 1},
    {"pb32", Type::PB32, 2}, {"pf32", Type::PF32, 2}, {"mix", Type::Mix, 1},   {"m", Type::Mask, 2},
    {"k", Type::Literal, 1}, {"d", Type::Tied, 1},    {"-", Type::None, 0},
};

// "f32", "b32x4" (four times as many registers), "f16p" (the other half is preserved).
TypedOperand parse_operand(std::string_view text, const char* row) {
    const size_t last = text.rfind('x');  // "mix" ends in one and is no count
    const size_t times = last + 1 < text.size() ? last : std::string_view::npos;
    const std::string_view base = text.substr(0, times);
    unsigned count = 1;
    if (times != std::string_view::npos) count = static_cast<unsigned>(std::stoul(std::string(text.substr(times + 1))));
    for (const bool preserve : {false, true}) {
        if (preserve && (base.empty() || base.back() != 'p')) break;
        const std::string_view word = preserve ? base.substr(0, base.size() - 1) : base;
        for (const Named& named : kTypes)
            if (named.name == word) return {named.type, static_cast<u8>(named.dwords * count), preserve};
    }
    throw std::logic_error(std::string(row) + ": no operand type '" + std::string(text) + "'");
}

Signature parse(const Row& row) {
    Signature result;
    std::string_view text = row.signature ? row.signature : "";
    const size_t equals = text.find('=');
    auto each = [&](std::string_view list, auto&& take) {
        while (!list.empty()) {
            const size_t comma = list.find(',');
            take(parse_operand(list.substr(0, comma), row.name));
            list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
        }
    };
    int destinations = 0;
    if (equals != std::string_view::npos) {
        each(text.substr(0, equals), [&](TypedOperand operand) {
            (destinations++ == 0 ? result.dst : result.sdst) = operand;
        });
        text = text.substr(equals + 1);
    }
    each(text, [&](TypedOperand operand) {
        if (result.sources == 4) throw std::logic_error(std::string(row.name) + ": more than four sources");
        result.src[result.sources++] = operand;
    });
    return result;
}

struct Table {
    std::unordered_map<u32, const Row*> by_opcode;
    std::unordered_map<const Row*, Signature> signatures;
    std::vector<const Row*> rows;

    Table() {
        for (const Rows list : kLists) {
            for (const Row& row : list()) {
                const u32 key = static_cast<u32>(row.format) << 16 | row.opcode;
                if (const auto [place, fresh] = by_opcode.emplace(key, &row); !fresh)
                    throw std::logic_error(std::string(row.name) + ": same opcode as " + place->second->name);
                signatures.emplace(&row, parse(row));
                rows.push_back(&row);
            }
        }
    }
};

const Table& table() {
    static const Table instance;
    return instance;
}

}  // namespace

const Row* find_row(Format format, u16 opcode) {
    const auto found = table().by_opcode.find(static_cast<u32>(format) << 16 | opcode);
    return found == table().by_opcode.end() ? nullptr : found->second;
}

const std::vector<const Row*>& all_rows() { return table().rows; }

const Signature& signature(const Row& row) { return table().signatures.at(&row); }

const char* name(Format format) {
    constexpr const char* kNames[] = {"sop1", "sop2",  "sopk", "sopc", "sopp", "smem",   "vop1",    "vop2",  "vopc",
                                      "vop3", "vop3p", "mai",  "ds",   "flat", "global", "scratch", "mubuf", "mtbuf"};
    return kNames[static_cast<int>(format)];
}

bool is_float(Type type) {
    switch (type) {
        case Type::F16:
        case Type::BF16:
        case Type::F32:
        case Type::F64:
        case Type::PF16:
        case Type::PBF16:
        case Type::PF32:
        case Type::Mix: return true;
        default: return false;
    }
}

}  // namespace emu
