// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4) {
    emulation::load_box_5d(shared, map, barrier, {x0, x1, x2, x3, x4});
}
/// Policies change nothing here.
inline void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4, uint64_t) {
    tma_load_5d(shared, map, barrier, x0, x1, x2, x3, x4);
}
inline void tma_prefetch_5d(const TensorMap&, int, int, int, int, int) {}
