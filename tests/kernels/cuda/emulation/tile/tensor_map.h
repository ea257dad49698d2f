// SPDX-License-Identifier: MIT
// Tensor maps for the emulation: the description itself, after the checks the driver makes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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
    const char *first = nullptr, *last = nullptr;   // if given, what may be read
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
