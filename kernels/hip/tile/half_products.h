// SPDX-License-Identifier: MIT
// The two products of attention as one wave computes them from panels in LDS (tile/half_panel.h): rows of a panel times
// rows that the wave holds, and its transposed sums, which operands lie in the results of the first.
#pragma once

#include "isa/buffer.h"
#include "isa/schedule.h"
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

/// use(i, chunk) for the chunks read(i) of LDS, i = 0 .. Count-1; `Ahead` are on their way while one is used.
template <int Count, int Ahead = 4, class Read, class Use>
__device__ __forceinline__ void for_each_chunk(Read read, Use use) {
    constexpr int kAhead = Count < Ahead ? Count : Ahead;
    u32x4 chunk[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) chunk[i] = read(i);
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        schedule_barrier();
        use(i, chunk[i % kAhead]);
        if (i + kAhead < Count) chunk[i % kAhead] = read(i + kAhead);
    }
}

/// Chunk `step` of rows paired_row(t, .) of a panel of `Columns` columns: first operands of two MFMA steps. `base` is rows_base.
template <int Columns>
__device__ __forceinline__ u32x4 read_row(const uint8_t* panel, int base, int t, int step) {
    return read_chunk(panel, KeyPanel<Columns>::at(base, paired_row(t, 0), step * 4));
}

/// Add that chunk times chunk `step` of the held rows: in the end product[n][i] is row scored_key(t, i) of the panel by row r
/// of held tile n.
template <class Half, int Steps, int Tiles>
__device__ __forceinline__ void multiply_row(
    u32x4 row, const u32x4 (&held)[Tiles][Steps], int step, f32x4 (&product)[Tiles]) {
    if (step == 0)
#pragma unroll
        for (int n = 0; n < Tiles; ++n) product[n] = f32x4{};
#pragma unroll
    for (int n = 0; n < Tiles; ++n) product[n] = Half::multiply(first_step(row), first_step(held[n][step]), product[n]);
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
        product[n] = Half::multiply(second_step(row), second_step(held[n][step]), product[n]);
}

/// Chunk i of the columns of a transposed panel of `Rows` rows: first operands of two MFMA steps for column tile
/// i % ColumnTiles. `base` is columns_base.
template <int Rows, int ColumnTiles>
__device__ __forceinline__ u32x4 read_column(const uint8_t* panel, int base, int i) {
    const int t = i % ColumnTiles;
    return read_chunk(panel, ValuePanel<Rows>::at(base, t / 4 * 64 + interleaved_row(t % 4, 0), i / ColumnTiles * 4));
}

/// Add to sum^T that chunk times weights packed from products of rows: sum[n][4 * a + b][i] is column 64 a + 16 g + 4 b + i of
/// row r of tile n.
template <class Half, int RowTiles, int Tiles, int ColumnTiles>
__device__ __forceinline__ void multiply_column(
    u32x4 column, int i, const u32x2 (&weight)[Tiles][RowTiles], f32x4 (&sum)[Tiles][ColumnTiles]) {
    const int pair = i / ColumnTiles, t = i % ColumnTiles;
#pragma unroll
    for (int n = 0; n < Tiles; ++n) sum[n][t] = Half::multiply(first_step(column), weight[n][2 * pair], sum[n][t]);
#pragma unroll
    for (int n = 0; n < Tiles; ++n) sum[n][t] = Half::multiply(second_step(column), weight[n][2 * pair + 1], sum[n][t]);
}

/// All chunks of the columns.
template <class Half, int Rows, int Tiles, int ColumnTiles>
__device__ __forceinline__ void multiply_columns(
    const uint8_t* panel, int base, const u32x2 (&weight)[Tiles][Rows / 16], f32x4 (&sum)[Tiles][ColumnTiles]) {
    for_each_chunk<Rows / 32 * ColumnTiles>([&](int i) {
        return read_column<Rows, ColumnTiles>(panel, base, i);
    }, [&](int i, u32x4 column) { multiply_column<Half>(column, i, weight, sum); });
}
