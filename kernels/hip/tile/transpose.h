// SPDX-License-Identifier: MIT
// Transposing small matrices of bytes or 16-bit values inside the registers of one lane, with v_perm_b32.
#pragma once

#include "isa/perm.h"
#include "isa/types.h"

/// In: dword r holds bytes (r, 0) .. (r, 3). Out: dword c holds bytes (0, c) .. (3, c). Eight instructions.
__device__ __forceinline__ u32x4 transpose_bytes_4x4(uint32_t row0, uint32_t row1, uint32_t row2, uint32_t row3) {
    const uint32_t left01 = byte_perm(row0, row1, 0x05010400);  // (0,0) (1,0) (0,1) (1,1)
    const uint32_t left23 = byte_perm(row2, row3, 0x05010400);
    const uint32_t right01 = byte_perm(row0, row1, 0x07030602);  // (0,2) (1,2) (0,3) (1,3)
    const uint32_t right23 = byte_perm(row2, row3, 0x07030602);
    return u32x4{
        byte_perm(left01, left23, 0x05040100), byte_perm(left01, left23, 0x07060302),
        byte_perm(right01, right23, 0x05040100), byte_perm(right01, right23, 0x07060302)};
}

/// In: row r (of 4 or 8) holds `Columns` 16-bit values, two per dword. Out: column c holds its values of all rows, in order.
/// An instruction per two values.
template <int Rows, int Columns, class Row, class Column>
__device__ __forceinline__ void transpose_halves(const Row (&rows)[Rows], Column (&columns)[Columns]) {
    static_assert(sizeof(Row) == Columns * 2 && sizeof(Column) == Rows * 2, "rows and columns are halves");
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
        const uint32_t selector = c % 2 == 0 ? 0x05040100 : 0x07060302;  // the lower or the upper halves
#pragma unroll
        for (int r = 0; r < Rows; r += 2) columns[c][r / 2] = byte_perm(rows[r][c / 2], rows[r + 1][c / 2], selector);
    }
}
