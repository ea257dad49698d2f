// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2) {
    emulation::load_box_5d(shared, map, barrier, {x0, x1, x2, 0, 0});
}
inline void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint64_t) {
    tma_load_3d(shared, map, barrier, x0, x1, x2);
}
