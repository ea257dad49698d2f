// SPDX-License-Identifier: MIT
// SMFMAC: D += A * B with an A of which two of every four elements in a row are stored.
//
// A's stored elements lie as a dense A with half the K would: P of them a lane (4 of 16 bits, 8 of 8 bits), those of
// 2 * P consecutive k. B is dense with 2 * P elements a lane. Source 2 is a register of 2-bit positions: element e of
// lane l stands for k = 2 * P * (l / M) + 4 * (e / 2) + position e, where position e is bits 2e and 2e+1 of the part of
// the register that ABID selects if CBSZ is 0 (four parts of 8 bits for 16-bit elements, two of 16 bits for 8-bit ones),
// of the lowest part otherwise. (AMD's matrix instruction calculator; MI300 ISA guide, "Sparse Matrix".)
#include <span>

#include "../table.h"
#include "matrix_operands.h"

namespace emu {
namespace {

using namespace matrix;

/// `kShape.k` is the number of stored elements: half the instruction's K.
template <Shape kShape>
struct Sparse {
    static constexpr int kProducts = kShape.k;
    u16 offsets_b[kShape.m][kProducts];

    int a(int row, int k) const { return Dense<kShape>::offset(k) + row; }
    int b(int row, int k) const { return offsets_b[row][k]; }
};

template <Shape kShape>
void read_positions(const Wave& w, const Op& op, Sparse<kShape>& plan) {
    constexpr int kStored = kShape.per_lane(), kPartBits = 2 * kStored, kParts = 32 / kPartBits;
    if (op.inst.blgp) fault(w, op, "does not support blgp");
    const int part = op.inst.cbsz ? 0 : op.inst.abid;
    if (part >= kParts) fault(w, op, "has an abid that selects indices beyond the register");
    const u32* const words = source_registers(w, op, 2);
    for (int k = 0; k < kShape.k; ++k) {
        const int element = k % kStored, group = k / kStored;
        for (int row = 0; row < kShape.m; ++row) {
            const u32 positions = words[kShape.m * group + row] >> (part * kPartBits);
            const int dense = element / 2 * 4 + static_cast<int>(positions >> (2 * element) & 3);
            plan.offsets_b[row][k] = static_cast<u16>(dense * kLanes + kShape.n * group);
        }
    }
}

/// Exponents of B's elements, one in a word: the products of a row take them from anywhere.
struct Exponents {
    alignas(64) i32 of[Unpacked::kMost][kLanes];
};

template <class SumKind, Shape kShape>
f32x16 sparse_row(
    const Sparse<kShape>& plan, const Unpacked& a, const Unpacked& b, const Exponents& exponents_b, int row, int column,
    f32x16 initial) {
    constexpr int kParts = SumKind::kParts;
    constexpr int kGroup = kShape.k < SumKind::kGroup ? kShape.k : SumKind::kGroup;
    f32x16 total = initial;
    i32x16 doubt = 0;
    for (int first = 0; first < kShape.k; first += kGroup) {
        i32x16 exponent[kParts], sum[kParts];
        f32x16 scale[kParts];
        repeat<kParts>([&](auto part) EMU_INLINE { exponent[part] = -1000; });
        repeat<kGroup>([&](auto k) EMU_INLINE {
            const i32 left = exponent_of(a.value[0][plan.a(row, first + k)], a.smallest);
            const i32x16 right = load16<i32x16>(exponents_b.of[0] + plan.b(row, first + k) + column);
            exponent[k % kParts] = __builtin_elementwise_max(exponent[k % kParts], right + left);
        });
        repeat<kParts>([&](auto part) EMU_INLINE {
            scale[part] = alignment(exponent[part]);
            sum[part] = 0;
        });
        repeat<kGroup>([&](auto k) EMU_INLINE {
            const f32x16 right = load16<f32x16>(b.value[0] + plan.b(row, first + k) + column);
            const f32x16 product = right * a.value[0][plan.a(row, first + k)];
            sum[k % kParts] += __builtin_convertvector(product * scale[k % kParts], i32x16);
        });
        if constexpr (kParts == 1) doubt |= doubtful(exponent[0], plan, a, b, row, column, first, kGroup);
        total = add_parts<SumKind>(sum, exponent, total);
    }
    if (__builtin_expect(__builtin_reduce_or(doubt) != 0, 0))
        for (int lane = 0; lane < kChunk; ++lane)
            if (doubt[lane]) total[lane] = exact_result<SumKind>(plan, a, b, row, column + lane, initial[lane]);
    return total;
}

template <class FormatA, class FormatB, class SumKind, Shape kShape>
void fused(Wave& w, const Op& op) {
    Unpacked a, b;
    Sparse<kShape> plan;
    read_positions(w, op, plan);
    unpack<FormatA>(source_registers(w, op, 0), kShape.per_lane(), a);
    unpack<FormatB>(source_registers(w, op, 1), 2 * kShape.per_lane(), b);
    u32* const registers = w.v(op.dst.index);
    if (a.special || b.special) return exact_block<SumKind, kShape>(plan, a, b, 0, Result{registers, registers, 0});
    Exponents exponents;
    for (int element = 0; element < 2 * kShape.per_lane(); ++element) {
        const f32v values = load<f32v>(reinterpret_cast<const u32*>(b.value[element]));
        store(reinterpret_cast<u32*>(exponents.of[element]), exponents_of(values, b.smallest));
    }
    for (int row = 0; row < kShape.m; ++row)
        for (int column = 0; column < kShape.n; column += kChunk) {
            u32* const place = registers + result_offset<kShape>(row, column, 0);
            store16(place, sparse_row<SumKind>(plan, a, b, exponents, row, column, load16<f32x16>(place)));
        }
}

template <Shape kShape>
void integers(Wave& w, const Op& op) {
    Unpacked a, b;
    Sparse<kShape> plan;
    read_positions(w, op, plan);
    unpack_bytes(source_registers(w, op, 0), kShape.per_lane(), a);
    unpack_bytes(source_registers(w, op, 1), 2 * kShape.per_lane(), b);
    u32* const d = w.v(op.dst.index);
    integer_block<kShape>(plan, a, b, 0, Result{d, d, 0});
}

constexpr Shape k16x16x16{16, 16, 16, 1}, k32x32x8{32, 32, 8, 1};  // stored elements
constexpr Shape k16x16x32{16, 16, 32, 1}, k32x32x16{32, 32, 16, 1};

constexpr Row small(const char* name, u16 opcode, Execute execute) {
    return {name, Format::Mai, opcode, "f32x4=b64,b32x4,b32,d", nullptr, execute, 0, 4};
}

constexpr Row large(const char* name, u16 opcode, Execute execute) {
    return {name, Format::Mai, opcode, "f32x16=b64,b32x4,b32,d", nullptr, execute, 0, 8};
}

constexpr Row kRows[] = {
    small("v_smfmac_f32_16x16x32_f16", 98, fused<F16, F16, SumSixteen, k16x16x16>),
    large("v_smfmac_f32_32x32x16_f16", 100, fused<F16, F16, SumSixteen, k32x32x8>),
    small("v_smfmac_f32_16x16x32_bf16", 102, fused<Bf16, Bf16, SumSixteen, k16x16x16>),
    large("v_smfmac_f32_32x32x16_bf16", 104, fused<Bf16, Bf16, SumSixteen, k32x32x8>),
    {"v_smfmac_i32_16x16x64_i8", Format::Mai, 106, "i32x4=b64,b32x4,b32,d", nullptr, integers<k16x16x32>, 0, 4},
    {"v_smfmac_i32_32x32x32_i8", Format::Mai, 108, "i32x16=b64,b32x4,b32,d", nullptr, integers<k32x32x16>, 0, 8},
    small("v_smfmac_f32_16x16x64_bf8_bf8", 120, fused<Bf8, Bf8, SumEight, k16x16x32>),
    small("v_smfmac_f32_16x16x64_bf8_fp8", 121, fused<Bf8, Fp8, SumEight, k16x16x32>),
    small("v_smfmac_f32_16x16x64_fp8_bf8", 122, fused<Fp8, Bf8, SumEight, k16x16x32>),
    small("v_smfmac_f32_16x16x64_fp8_fp8", 123, fused<Fp8, Fp8, SumEight, k16x16x32>),
    large("v_smfmac_f32_32x32x32_bf8_bf8", 124, fused<Bf8, Bf8, SumEight, k32x32x16>),
    large("v_smfmac_f32_32x32x32_bf8_fp8", 125, fused<Bf8, Fp8, SumEight, k32x32x16>),
    large("v_smfmac_f32_32x32x32_fp8_bf8", 126, fused<Fp8, Bf8, SumEight, k32x32x16>),
    large("v_smfmac_f32_32x32x32_fp8_fp8", 127, fused<Fp8, Fp8, SumEight, k32x32x16>),
};

}  // namespace

std::span<const Row> smfmac_rows() { return kRows; }

}  // namespace emu
