// SPDX-License-Identifier: MIT
// Which lane and register of an MFMA operand holds which element.
//
// A is M x K, B is K x N, C and D are M x N, `blocks` of each. Lanes are numbered within the wave, registers from the
// operand's first. (Facts of AMD's matrix instruction calculator, github.com/ROCm/amd_matrix_instruction_calculator, and
// of the MI300 ISA guide, chapter "Matrix Arithmetic Instructions"; the formulas here are ours.)
//
//   A: each lane holds P = M * K * blocks / 64 consecutive k of one row, first k in the lowest bits of the first register:
//        A[i][k] of block b: lane (k / P) * M * blocks + M * b + i, element k % P
//   B: the same with columns for rows:
//        B[k][j] of block b: lane (k / P) * N * blocks + N * b + j, element k % P
//   C, D (32-bit elements, N = 16 or 32), with G = 64 / N rows side by side in a register:
//        D[i][j] of block b: lane N * (i / 4 % G) + j, register M * N / 64 * b + 4 * (i / (4 * G)) + i % 4
//   C, D (32-bit elements, 4x4 with 16 blocks): lane 4 * b + j, register i
//   C, D (f64 16x16): lane 16 * (i % 4) + j, register pair i / 4;  (f64 4x4, 4 blocks): lane 16 * i + 4 * b + j
//
//   shape        P   example
//   32x32x8 f16   4   A[i][k]: lane 32 * (k / 4) + i;  D[i][j]: lane 32 * (i / 4 % 2) + j, register 4 * (i / 8) + i % 4
//   16x16x16 f16  4   A[i][k]: lane 16 * (k / 4) + i;  D[i][j]: lane 16 * (i / 4) + j, register i % 4
//   16x16x32 fp8  8   A[i][k]: lane 16 * (k / 8) + i;  D as above
//   32x32x16 fp8  8   A[i][k]: lane 32 * (k / 8) + i;  D as for 32x32x8
//   16x16x4 4b    4   A[i][k] of block b: lane 16 * b + i;  D: register 4 * b + i % 4
//
// CBSZ and ABID (instructions of several blocks): blocks form groups of 2^CBSZ, and all blocks of a group take their A
// from the group's block ABID. BLGP (f32 and instructions of several blocks) redirects the lanes B is read from, in
// quarters of the wave: 1 = lower half twice, 2 = upper half twice, 3 = lane l reads lane l + 16 (mod 64), 4..7 = the
// first..fourth quarter four times. For f64 the same bits negate A, B and C.
#pragma once

#include "../types.h"

namespace emu::matrix {

using f32x16 = f32 __attribute__((ext_vector_type(16)));
using i32x16 = i32 __attribute__((ext_vector_type(16)));
using u32x16 = u32 __attribute__((ext_vector_type(16)));
using f64x16 = f64 __attribute__((ext_vector_type(16)));
using i64x16 = i64 __attribute__((ext_vector_type(16)));

constexpr int kChunk = 16;  // lanes that one vector of the above covers; every layout keeps them together

template <class V>
inline V load16(const void* place) {
    return *static_cast<const V*>(__builtin_assume_aligned(place, 64));
}

template <class V>
inline void store16(void* place, V value) {
    *static_cast<V*>(__builtin_assume_aligned(place, 64)) = value;
}

struct Shape {
    int m, n, k, blocks;

    constexpr int per_lane() const { return m * k * blocks / kLanes; }  // P above; of B too, because M = N
    constexpr int result_registers() const { return m * n * blocks / kLanes; }
    constexpr int source_lane(int row_or_column, int k_index, int block) const {
        return k_index / per_lane() * m * blocks + m * block + row_or_column;
    }
    constexpr int result_lane(int row, int column, int block) const {
        return n == 4 ? 4 * block + column : n * (row / 4 % (kLanes / n)) + column;
    }
    constexpr int result_register(int row, int block) const {
        return n == 4 ? row : m * n / kLanes * block + 4 * (row / (4 * (kLanes / n))) + row % 4;
    }
};

/// The block whose A block `block` multiplies.
inline int broadcast_block(int block, int cbsz, int abid) {
    const int group = (1 << cbsz) - 1;
    return (block & ~group) | (abid & group);
}

/// The quarter of the wave that is read in place of `quarter`.
inline int redirected_quarter(int quarter, int blgp) {
    switch (blgp) {
        case 0: return quarter;
        case 1: return quarter & 1;
        case 2: return 2 + (quarter & 1);
        case 3: return (quarter + 1) & 3;
        default: return blgp - 4;
    }
}

inline int redirected_lane(int lane, int blgp) { return redirected_quarter(lane / 16, blgp) * 16 + lane % 16; }

}  // namespace emu::matrix
