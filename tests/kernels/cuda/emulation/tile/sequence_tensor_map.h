// SPDX-License-Identifier: MIT
#pragma once

#include "tile/tensor_map.h"

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
