// SPDX-License-Identifier: MIT
//!KERNEL summary tiles of 64 x n in plain loops
//
// The readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include "fp8.h"
#include "status.h"

namespace {

float load(const void* from, size_t i, int type) {
    switch (type) {
        case 0: return fp16_to_float(static_cast<const uint16_t*>(from)[i]);
        case 1: return bf16_to_float(static_cast<const uint16_t*>(from)[i]);
        case 2: return static_cast<const float*>(from)[i];
        default: return fp8_to_float(static_cast<const uint8_t*>(from)[i]);
    }
}

}  // namespace

extern "C" int wgmma_tile(
    const void* a, const void* b, float* c, int n, int k, int type, int repeat, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (n <= 0 || k <= 0 || repeat <= 0) return kUnsupportedShape;
    const size_t columns = static_cast<size_t>(n), depth = static_cast<size_t>(k);
    for (size_t row = 0; row < 64 * static_cast<size_t>(repeat); ++row) {
        const size_t tile = row / 64;
        for (size_t column = 0; column < columns; ++column) {
            float sum = 0.0f;
            for (size_t i = 0; i < depth; ++i)
                sum += load(a, row * depth + i, type) * load(b, (tile * columns + column) * depth + i, type);
            c[row * columns + column] = sum;
        }
    }
    return kOk;
}
