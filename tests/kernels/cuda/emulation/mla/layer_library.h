// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/mla/layer_library.h: the products in plain loops, rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mla/layer_product.h"
#include "ptx/number_formats.h"

namespace mla {

inline bool library_works() { return true; }

inline int library_product(const LayerProduct& p, void*, size_t, void*) {
    using emulation::bfloat;
    for (int b = 0; b < p.count; ++b) {
        const uint16_t* x = static_cast<const uint16_t*>(p.x) + b * p.x_step;
        const uint16_t* w = static_cast<const uint16_t*>(p.w) + b * p.w_step;
        uint16_t* y = static_cast<uint16_t*>(p.y) + b * p.y_step;
        for (int i = 0; i < p.m; ++i) {
            std::vector<float> sums(p.n);
            for (int k = 0; k < p.k; ++k) {
                const float factor = bfloat(x[i * p.x_pitch + k]);
                const uint16_t* row = w + (p.plain ? k * p.w_pitch : k);
                const long long step = p.plain ? 1 : p.w_pitch;
                for (int j = 0; j < p.n; ++j) sums[j] += factor * bfloat(row[j * step]);
            }
            for (int j = 0; j < p.n; ++j) y[i * p.y_pitch + j] = static_cast<uint16_t>(emulation::to_bfloat(sums[j]));
        }
    }
    return 0;
}

}  // namespace mla
