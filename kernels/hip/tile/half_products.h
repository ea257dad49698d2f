// SPDX-License-Identifier: MIT
// The two products of attention as one wave computes them from panels in LDS (tile/half_panel.h): rows of a panel times
// rows that the wave holds, and its transposed sums, which operands lie in the results of the first.
#pragma once

#include "isa/buffer.h"
#include "tile/half.h"
#include "tile/half_panel.h"

/// Rows that the wave holds, 16 for each n: second operands of two MFMA steps per element. Those beyond the buffer are zeros.
template <int Tiles, int Steps>
__device__ __forceinline__ void load_rows(BufferResource buffer, int first, int pitch, u32x4 (&row)[Tiles][Steps]) {
    const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
        for (int step = 0; step < Steps; ++step)
            row[n][step] = buffer_load_16(buffer, (first + n * 16 + r) * pitch + (step * 4 + g) * 16);
}

/// Where this lane reads the first of the rows and of the columns below.
template <int Columns>
__device__ __forceinline__ int rows_base() {
    return KeyPanel<Columns>::offset(paired_row(0, lane_id() % 16), lane_id() / 16);
}

template <int Rows>
__device__ __forceinline__ int columns_base() {
    return ValuePanel<Rows>::offset(interleaved_row(0, lane_id() % 16), lane_id() / 16);
}

/// Rows paired_row(t, .) of a panel of `Columns` columns times the held rows: product[n][i] is row scored_key(t, i) of the
/// panel by row r of held tile n. `base` is rows_base.
template <class Half, int Columns, int Tiles>
__device__ __forceinline__ void multiply_rows(
    const uint8_t* panel, int base, int t, const u32x4 (&held)[Tiles][Columns / 32], f32x4 (&product)[Tiles]) {
    using Panel = KeyPanel<Columns>;
#pragma unroll
    for (int n = 0; n < Tiles; ++n) product[n] = f32x4{};
#pragma unroll
    for (int step = 0; step < Columns / 32; ++step) {
        const u32x4 row = read_chunk(panel, Panel::at(base, paired_row(t, 0), step * 4));
#pragma unroll
        for (int n = 0; n < Tiles; ++n)
            product[n] = Half::multiply(first_step(row), first_step(held[n][step]), product[n]);
#pragma unroll
        for (int n = 0; n < Tiles; ++n)
            product[n] = Half::multiply(second_step(row), second_step(held[n][step]), product[n]);
    }
}

/// Add to sum^T the columns of a transposed panel of `Rows` rows times weights packed from results of multiply_rows:
/// sum[n][4 * a + b][i] is column 64 a + 16 g + 4 b + i of row r of tile n. `base` is columns_base.
template <class Half, int Rows, int Tiles, int ColumnTiles>
__device__ __forceinline__ void multiply_columns(
    const uint8_t* panel, int base, const u32x2 (&weight)[Tiles][Rows / 16], f32x4 (&sum)[Tiles][ColumnTiles]) {
    using Panel = ValuePanel<Rows>;
#pragma unroll
    for (int pair = 0; pair < Rows / 32; ++pair)
#pragma unroll
        for (int t = 0; t < ColumnTiles; ++t) {
            const u32x4 column = read_chunk(panel, Panel::at(base, t / 4 * 64 + interleaved_row(t % 4, 0), pair * 4));
#pragma unroll
            for (int n = 0; n < Tiles; ++n)
                sum[n][t] = Half::multiply(first_step(column), weight[n][2 * pair], sum[n][t]);
#pragma unroll
            for (int n = 0; n < Tiles; ++n)
                sum[n][t] = Half::multiply(second_step(column), weight[n][2 * pair + 1], sum[n][t]);
        }
}
