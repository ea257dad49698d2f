// SPDX-License-Identifier: MIT
// From an operation to registers: what MFMA and SMFMAC have in common.
#pragma once

#include "matrix_multiply.h"

namespace emu::matrix {

constexpr int kMostResultRegisters = 32;
struct alignas(64) Copy {
    u32 words[kMostResultRegisters * kLanes];
};

inline const u32* source_registers(const Wave& w, const Op& op, int source) {
    if (op.src[source].kind != Operand::Vector) fault(w, op, "takes A and B from vector registers only");
    return w.v(op.src[source].index);
}

/// C and D. Rows of D are written while C is still read: where they overlap without being the same, C is copied first.
inline Result result_of(const Wave& w, const Op& op, Copy& copy) {
    Result result;
    result.registers = w.v(op.dst.index);
    const Operand& c = op.src[2];
    if (c.kind == Operand::Constant) {
        result.constant = c.value;
    } else if (c.kind != Operand::Vector) {
        fault(w, op, "takes C from vector registers or an inline constant only");
    } else {
        result.initial = w.v(c.index);
        const int distance = c.index - op.dst.index;
        if (distance != 0 && distance < op.dst.dwords && -distance < op.dst.dwords) {
            std::memcpy(copy.words, result.initial, sizeof(u32) * kLanes * op.dst.dwords);
            result.initial = copy.words;
        }
    }
    return result;
}

inline void require_no_broadcast(const Wave& w, const Op& op, bool a_allowed, bool b_allowed) {
    if (!a_allowed && (op.inst.cbsz || op.inst.abid)) fault(w, op, "has one block only: cbsz and abid must be 0");
    if (!b_allowed && op.inst.blgp) fault(w, op, "does not support blgp");
}

/// BLGP: B as if its lanes were elsewhere.
inline void redirect_lanes(Unpacked& b, int elements, int blgp) {
    if (!blgp) return;
    auto redirect = [blgp](void* row) {
        i32x16 quarters[4];
        for (int quarter = 0; quarter < 4; ++quarter)
            quarters[quarter] = load16<i32x16>(static_cast<u32*>(row) + kChunk * redirected_quarter(quarter, blgp));
        for (int quarter = 0; quarter < 4; ++quarter)
            store16(static_cast<u32*>(row) + kChunk * quarter, quarters[quarter]);
    };
    for (int element = 0; element < elements; ++element) redirect(b.value[element]);
    for (auto& words : b.exponent) redirect(words);
}

}  // namespace emu::matrix
