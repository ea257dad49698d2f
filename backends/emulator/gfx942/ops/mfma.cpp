// SPDX-License-Identifier: MIT
// MFMA: dense matrix multiply-add of a wave. Layout: matrix_layout.h; arithmetic: matrix_sum.h.
//
// EXEC does not matter, and neither does MODE. `passes` (of 4 cycles) are the "Execution cycles" of AMD's matrix
// instruction calculator for CDNA3 divided by four.
#include <cmath>
#include <span>

#include "../table.h"
#include "matrix_operands.h"

namespace emu {
namespace {

using namespace matrix;

/// Runs `compute(block, first lane of A, first lane of B)` for each block.
template <Shape kShape, class Compute>
void each_block(const Op& op, Compute compute) {
    for (int block = 0; block < kShape.blocks; ++block) {
        const int from = kShape.blocks > 1 ? broadcast_block(block, op.inst.cbsz, op.inst.abid) % kShape.blocks : block;
        compute(block, kShape.m * from, kShape.n * block);
    }
}

// --- xf32, f16, bf16, fp8, bf8 ---------------------------------------------------------------------------------------

template <class FormatA, class FormatB, class SumKind, Shape kShape>
void fused(Wave& w, const Op& op) {
    require_no_broadcast(w, op, kShape.blocks > 1, kShape.blocks > 1);
    Unpacked a, b;
    Copy copy;
    unpack<FormatA>(source_registers(w, op, 0), kShape.per_lane(), a);
    unpack<FormatB>(source_registers(w, op, 1), kShape.per_lane(), b);
    redirect_lanes(b, kShape.per_lane(), op.inst.blgp);
    const Result d = result_of(w, op, copy);
    each_block<kShape>(op, [&](int block, int first_a, int first_b) {
        const Dense<kShape> plan{first_a, first_b};
        if constexpr (kShape.n > 4) {
            if (__builtin_expect(!a.special && !b.special, 1))
                return dense_block<SumKind, kShape>(plan, a, b, block, d);
        }
        exact_block<SumKind, kShape>(plan, a, b, block, d);
    });
}

// --- i8 --------------------------------------------------------------------------------------------------------------

template <Shape kShape>
void integers(Wave& w, const Op& op) {
    require_no_broadcast(w, op, kShape.blocks > 1, kShape.blocks > 1);
    Unpacked a, b;
    Copy copy;
    unpack_bytes(source_registers(w, op, 0), kShape.per_lane(), a);
    unpack_bytes(source_registers(w, op, 1), kShape.per_lane(), b);
    redirect_lanes(b, kShape.per_lane(), op.inst.blgp);
    const Result d = result_of(w, op, copy);
    each_block<kShape>(op, [&](int block, int first_a, int first_b) {
        const Dense<kShape> plan{first_a, first_b};
        if constexpr (kShape.n > 4) {
            integer_block<kShape>(plan, a, b, block, d);
        } else {
            for (int row = 0; row < kShape.m; ++row)
                for (int column = 0; column < kShape.n; ++column) {
                    f32 sum = 0;
                    for (int k = 0; k < kShape.k; ++k)
                        sum += a.value[0][plan.a(row, k)] * b.value[0][plan.b(row, k) + column];
                    const int offset = result_offset<kShape>(row, column, block);
                    const u32 initial = d.initial ? d.initial[offset] : static_cast<u32>(d.constant);
                    d.registers[offset] = initial + static_cast<u32>(static_cast<i32>(sum));
                }
        }
    });
}

// --- f32 -------------------------------------------------------------------------------------------------------------

template <Shape kShape>
void singles(Wave& w, const Op& op) {
    require_no_broadcast(w, op, kShape.blocks > 1, true);
    static_assert(kShape.per_lane() == 1);
    Unpacked a, b;
    Copy copy;
    std::memcpy(a.value[0], source_registers(w, op, 0), sizeof a.value[0]);
    std::memcpy(b.value[0], source_registers(w, op, 1), sizeof b.value[0]);
    redirect_lanes(b, 1, op.inst.blgp);
    const Result d = result_of(w, op, copy);
    each_block<kShape>(op, [&](int block, int first_a, int first_b) {
        const Dense<kShape> plan{first_a, first_b};
        for (int row = 0; row < kShape.m; ++row) {
            if constexpr (kShape.n > 4) {
                for (int column = 0; column < kShape.n; column += kChunk) {
                    const int offset = result_offset<kShape>(row, column, block);
                    f32x16 total = d.load(offset);
                    for (int k = 0; k < kShape.k; ++k)
                        total = __builtin_elementwise_fma(
                            f32x16(a.value[0][plan.a(row, k)]), load16<f32x16>(b.value[0] + plan.b(row, k) + column),
                            total);
                    const i32x16 bits = std::bit_cast<i32x16>(total);
                    store16(d.registers + offset, total != total ? i32x16(kNan32) : bits);
                }
            } else {
                for (int column = 0; column < kShape.n; ++column) {
                    const int offset = result_offset<kShape>(row, column, block);
                    f32 total = as_f32(d.initial ? d.initial[offset] : static_cast<u32>(d.constant));
                    for (int k = 0; k < kShape.k; ++k)
                        total = std::fma(a.value[0][plan.a(row, k)], b.value[0][plan.b(row, k) + column], total);
                    d.registers[offset] = std::isnan(total) ? kNan32 : as_u32(total);
                }
            }
        }
    });
}

// --- f64 -------------------------------------------------------------------------------------------------------------

// BLGP's bits negate A, B and C.
template <Shape kShape>
void doubles(Wave& w, const Op& op) {
    require_no_broadcast(w, op, false, true);
    static_assert(kShape.per_lane() == 1);
    alignas(64) f64 a[kLanes], b[kLanes];
    Copy copy;
    const u32 *const left = source_registers(w, op, 0), *const right = source_registers(w, op, 1);
    const f64 sign_a = op.inst.blgp & 1 ? -1 : 1, sign_b = op.inst.blgp & 2 ? -1 : 1,
              sign_c = op.inst.blgp & 4 ? -1 : 1;
    for (int lane = 0; lane < kLanes; ++lane) {
        a[lane] = sign_a * as_f64(lane64(left, lane));
        b[lane] = sign_b * as_f64(lane64(right, lane));
    }
    const Result d = result_of(w, op, copy);
    for (int block = 0; block < kShape.blocks; ++block)
        for (int row = 0; row < kShape.m; ++row)
            for (int column = 0; column < kShape.n; ++column) {
                const bool small = kShape.n == 4;
                const int lane = small ? 16 * row + 4 * block + column : 16 * (row % 4) + column;
                const int pair = small ? 0 : row / 4;
                f64 total = sign_c * as_f64(d.initial ? lane64(d.initial + 2 * pair * kLanes, lane) : d.constant);
                for (int k = 0; k < kShape.k; ++k)
                    total =
                        std::fma(a[kShape.source_lane(row, k, block)], b[kShape.source_lane(column, k, block)], total);
                set_lane64(d.registers + 2 * pair * kLanes, lane, std::isnan(total) ? kNan64 : as_u64(total));
            }
}

constexpr Shape k32x32x1x2{32, 32, 1, 2}, k16x16x1x4{16, 16, 1, 4}, k4x4x1x16{4, 4, 1, 16};
constexpr Shape k32x32x2{32, 32, 2, 1}, k16x16x4{16, 16, 4, 1}, k4x4x4x4{4, 4, 4, 4};
constexpr Shape k32x32x4x2{32, 32, 4, 2}, k16x16x4x4{16, 16, 4, 4}, k4x4x4x16{4, 4, 4, 16};
constexpr Shape k32x32x4{32, 32, 4, 1}, k16x16x8{16, 16, 8, 1}, k32x32x8{32, 32, 8, 1}, k16x16x16{16, 16, 16, 1};
constexpr Shape k32x32x16{32, 32, 16, 1}, k16x16x32{16, 16, 32, 1};

constexpr Row row(const char* name, u16 opcode, const char* signature, Execute execute, u8 passes) {
    return {name, Format::Mai, opcode, signature, nullptr, execute, 0, passes};
}

constexpr Row kRows[] = {
    row("v_mfma_f32_16x16x8_xf32", 62, "f32x4=b64,b64,f32x4", fused<Xf32, Xf32, SumXf32, k16x16x8>, 4),
    row("v_mfma_f32_32x32x4_xf32", 63, "f32x16=b64,b64,f32x16", fused<Xf32, Xf32, SumXf32, k32x32x4>, 8),
    row("v_mfma_f32_32x32x1_2b_f32", 64, "f32x32=f32,f32,f32x32", singles<k32x32x1x2>, 16),
    row("v_mfma_f32_16x16x1_4b_f32", 65, "f32x16=f32,f32,f32x16", singles<k16x16x1x4>, 8),
    row("v_mfma_f32_4x4x1_16b_f32", 66, "f32x4=f32,f32,f32x4", singles<k4x4x1x16>, 2),
    row("v_mfma_f32_32x32x2_f32", 68, "f32x16=f32,f32,f32x16", singles<k32x32x2>, 16),
    row("v_mfma_f32_16x16x4_f32", 69, "f32x4=f32,f32,f32x4", singles<k16x16x4>, 8),
    row("v_mfma_f32_32x32x4_2b_f16", 72, "f32x32=b64,b64,f32x32", fused<F16, F16, SumSixteen, k32x32x4x2>, 16),
    row("v_mfma_f32_16x16x4_4b_f16", 73, "f32x16=b64,b64,f32x16", fused<F16, F16, SumSixteen, k16x16x4x4>, 8),
    row("v_mfma_f32_4x4x4_16b_f16", 74, "f32x4=b64,b64,f32x4", fused<F16, F16, SumSixteen, k4x4x4x16>, 2),
    row("v_mfma_f32_32x32x8_f16", 76, "f32x16=b64,b64,f32x16", fused<F16, F16, SumSixteen, k32x32x8>, 8),
    row("v_mfma_f32_16x16x16_f16", 77, "f32x4=b64,b64,f32x4", fused<F16, F16, SumSixteen, k16x16x16>, 4),
    row("v_mfma_i32_32x32x4_2b_i8", 80, "i32x32=b32,b32,i32x32", integers<k32x32x4x2>, 16),
    row("v_mfma_i32_16x16x4_4b_i8", 81, "i32x16=b32,b32,i32x16", integers<k16x16x4x4>, 8),
    row("v_mfma_i32_4x4x4_16b_i8", 82, "i32x4=b32,b32,i32x4", integers<k4x4x4x16>, 2),
    row("v_mfma_i32_32x32x16_i8", 86, "i32x16=b64,b64,i32x16", integers<k32x32x16>, 8),
    row("v_mfma_i32_16x16x32_i8", 87, "i32x4=b64,b64,i32x4", integers<k16x16x32>, 4),
    row("v_mfma_f32_32x32x4_2b_bf16", 93, "f32x32=b64,b64,f32x32", fused<Bf16, Bf16, SumSixteen, k32x32x4x2>, 16),
    row("v_mfma_f32_16x16x4_4b_bf16", 94, "f32x16=b64,b64,f32x16", fused<Bf16, Bf16, SumSixteen, k16x16x4x4>, 8),
    row("v_mfma_f32_4x4x4_16b_bf16", 95, "f32x4=b64,b64,f32x4", fused<Bf16, Bf16, SumSixteen, k4x4x4x16>, 2),
    row("v_mfma_f32_32x32x8_bf16", 96, "f32x16=b64,b64,f32x16", fused<Bf16, Bf16, SumSixteen, k32x32x8>, 8),
    row("v_mfma_f32_16x16x16_bf16", 97, "f32x4=b64,b64,f32x4", fused<Bf16, Bf16, SumSixteen, k16x16x16>, 4),
    row("v_mfma_f64_16x16x4_f64", 110, "f64x4=f64,f64,f64x4", doubles<k16x16x4>, 8),
    row("v_mfma_f64_4x4x4_4b_f64", 111, "f64=f64,f64,f64", doubles<k4x4x4x4>, 4),
    row("v_mfma_f32_16x16x32_bf8_bf8", 112, "f32x4=b64,b64,f32x4", fused<Bf8, Bf8, SumEight, k16x16x32>, 4),
    row("v_mfma_f32_16x16x32_bf8_fp8", 113, "f32x4=b64,b64,f32x4", fused<Bf8, Fp8, SumEight, k16x16x32>, 4),
    row("v_mfma_f32_16x16x32_fp8_bf8", 114, "f32x4=b64,b64,f32x4", fused<Fp8, Bf8, SumEight, k16x16x32>, 4),
    row("v_mfma_f32_16x16x32_fp8_fp8", 115, "f32x4=b64,b64,f32x4", fused<Fp8, Fp8, SumEight, k16x16x32>, 4),
    row("v_mfma_f32_32x32x16_bf8_bf8", 116, "f32x16=b64,b64,f32x16", fused<Bf8, Bf8, SumEight, k32x32x16>, 8),
    row("v_mfma_f32_32x32x16_bf8_fp8", 117, "f32x16=b64,b64,f32x16", fused<Bf8, Fp8, SumEight, k32x32x16>, 8),
    row("v_mfma_f32_32x32x16_fp8_bf8", 118, "f32x16=b64,b64,f32x16", fused<Fp8, Bf8, SumEight, k32x32x16>, 8),
    row("v_mfma_f32_32x32x16_fp8_fp8", 119, "f32x16=b64,b64,f32x16", fused<Fp8, Fp8, SumEight, k32x32x16>, 8),
};

}  // namespace

std::span<const Row> mfma_rows() { return kRows; }

}  // namespace emu
