// SPDX-License-Identifier: MIT
// Host side: tensor maps, which tell the tensor memory accelerator of a tensor and of the boxes to move (ptx/tma.h): of matrices,
// of attention's heads, and of packed sequences.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Tensor maps for the emulation: the description itself, after the checks the driver makes.

struct Matrix {
    const void* start;
    int rows, columns;
    int element_bytes;
};

struct TensorMap {
    Matrix matrix;
    int box_rows, box_columns;
    // of maps with five dimensions, instead of the above but for the start and the element
    std::array<int, 5> sizes{}, box{};
    std::array<size_t, 5> pitches{};
    const char *first = nullptr, *last = nullptr;  // if given, what may be read
};

inline int encode_tensor_map(TensorMap* map, const Matrix& matrix, int box_rows, int box_columns, int = 256) {
    const int box_bytes = box_columns * matrix.element_bytes;
    const bool pitch = static_cast<size_t>(matrix.columns) * matrix.element_bytes % 16 == 0;
    const bool start = reinterpret_cast<uintptr_t>(matrix.start) % 16 == 0;
    const bool box = box_rows >= 1 && box_rows <= 256 && (box_bytes == 32 || box_bytes == 64 || box_bytes == 128);
    *map = {matrix, box_rows, box_columns, {}, {}, {}};
    return pitch && start && box ? 0 : 1;
}

inline int encode_panel_map(TensorMap* map, const Matrix& matrix, int box_rows, int panels, int = 256) {
    const size_t pitch = static_cast<size_t>(matrix.columns) * 2;
    *map = {matrix, 0, 0, {}, {}, {}};
    map->sizes = {64, matrix.rows, matrix.columns / 64, 1, 1};
    map->pitches = {2, pitch, 128, 0, 0};
    map->box = {64, box_rows, panels, 1, 1};
    const bool start = reinterpret_cast<uintptr_t>(matrix.start) % 16 == 0;
    return start && matrix.columns % 64 == 0 && box_rows >= 1 && box_rows <= 256 ? 0 : 1;
}

struct HeadTensor {
    const void* start;
    int batch, positions, heads, head_dim;
};

inline int encode_head_tensor_map(TensorMap* map, const HeadTensor& t, int box, int panels = 0) {
    const size_t row = static_cast<size_t>(t.head_dim) * 2;
    *map = {{t.start, 0, 0, 2}, 0, 0, {}, {}, {}};
    const int wide = t.head_dim < 64 ? t.head_dim : 64;
    map->sizes = {wide, t.positions, t.head_dim / wide, t.heads, t.batch};
    map->pitches = {2, t.heads * row, 128, row, t.positions * t.heads * row};
    map->box = {wide, box, panels == 0 ? t.head_dim / wide : panels, 1, 1};
    const bool right = (t.head_dim % 64 == 0 || t.head_dim == 32) && box >= 1 && box <= 256 &&
                       reinterpret_cast<uintptr_t>(t.start) % 16 == 0;
    return right ? 0 : 1;
}

struct SequenceTensor {
    const void* start;
    int positions, heads, head_dim;
};

inline int encode_sequence_tensor_map(TensorMap* map, const SequenceTensor& t, int box, int box_heads) {
    const size_t row = static_cast<size_t>(t.head_dim) * 2, position = t.heads * row;
    const auto start = reinterpret_cast<uintptr_t>(t.start);
    *map = {{reinterpret_cast<const void*>(start - t.positions * position), 0, 0, 2}, 0, 0, {}, {}, {}};
    map->sizes = {64, t.heads, t.positions, t.head_dim / 64, t.positions + 1};
    map->pitches = {2, row, position, 128, position};
    map->first = static_cast<const char*>(t.start);
    map->last = map->first + t.positions * position;
    map->box = {64, box_heads, box, t.head_dim / 64, 1};
    return t.head_dim % 64 == 0 && box >= 1 && box <= 256 && box_heads >= 1 && start % 16 == 0 ? 0 : 1;
}
