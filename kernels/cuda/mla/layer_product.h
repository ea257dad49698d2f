// SPDX-License-Identifier: MIT
// A product of an MLA layer, whoever computes it: mla/layer_library.h, mla/layer_kernels.h or mla/layer_mma_sync.h.
#pragma once

namespace mla {

/// y = x w^T with w [n, k], or x w with w [k, n] (`plain`); `count` products whose operands lie `..._step` elements apart.
/// Rows are contiguous, `..._pitch` elements apart. Sums are fp32.
struct LayerProduct {
    const void* x;
    const void* w;
    void* y;
    int m, n, k;
    long long x_pitch, w_pitch, y_pitch;
    bool plain = false;
    int count = 1;
    long long x_step = 0, w_step = 0, y_step = 0;
};

}  // namespace mla
