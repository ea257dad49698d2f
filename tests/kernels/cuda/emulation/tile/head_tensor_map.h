// SPDX-License-Identifier: MIT
#pragma once

#include "tile/tensor_map.h"

struct HeadTensor {
    const void* start;
    int batch, positions, heads, head_dim;
};

inline int encode_head_tensor_map(TensorMap* map, const HeadTensor& t, int box) {
    const size_t row = static_cast<size_t>(t.head_dim) * 2;
    *map = {{t.start, 0, 0, 2}, 0, 0, {}, {}, {}};
    const int wide = t.head_dim < 64 ? t.head_dim : 64;
    map->sizes = {wide, t.positions, t.head_dim / wide, t.heads, t.batch};
    map->pitches = {2, t.heads * row, 128, row, t.positions * t.heads * row};
    map->box = {wide, box, t.head_dim / wide, 1, 1};
    const bool right = (t.head_dim % 64 == 0 || t.head_dim == 32) && box >= 1 && box <= 256 && reinterpret_cast<uintptr_t>(t.start) % 16 == 0;
    return right ? 0 : 1;
}
