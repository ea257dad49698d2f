// SPDX-License-Identifier: MIT
//!KERNEL summary rotation by a fast Hadamard transform and fp8 codes with scales, row by row
//
// The kernel that runs anywhere, and the readable statement of what the GPU kernels compute: one pass for the largest
// magnitudes, one for the codes. One thread, no workspace.
#include "kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "status.h"

namespace {

constexpr int BLOCK = 128;  // tokens that share a scale

/// y of one row, rotated or not.
void turn(const uint16_t* x, const float* signs, int dim, bool rotated, float* y) {
    for (int i = 0; i < dim; ++i) y[i] = bf16_to_float(x[i]) * (rotated ? signs[i] : 1.0f);
    if (!rotated) return;
    for (int width = 1; width < dim; width *= 2)
        for (int i = 0; i < dim; ++i)
            if ((i & width) == 0) {
                const float a = y[i], b = y[i + width];
                y[i] = a + b;
                y[i + width] = a - b;
            }
    const float factor = 1.0f / std::sqrt(static_cast<float>(dim));
    for (int i = 0; i < dim; ++i) y[i] *= factor;
}

}  // namespace

extern "C" int hadamard_quantize(
    const void* x, const float* signs, unsigned char* codes, float* scale, int batch, int tokens, int heads,
    int head_dim, int rotated, int scales, float largest, void* /*workspace*/, size_t /*workspace_bytes*/,
    void* /*queue*/) {
    if (batch <= 0 || tokens <= 0 || heads <= 0 || scales < 0 || scales > 2) return kUnsupportedShape;
    if (head_dim != 64 && head_dim != 128 && head_dim != 256) return kUnsupportedShape;
    const int blocks = scales == 2 ? ceil_div(tokens, BLOCK) : 1;
    const size_t count = scales == 0 ? 1 : static_cast<size_t>(batch) * blocks * heads;
    const auto place = [&](int b, int t, int h) -> size_t {
        if (scales == 0) return 0;
        return (static_cast<size_t>(b) * blocks + (scales == 2 ? t / BLOCK : 0)) * heads + h;
    };
    float y[256];
    std::fill(scale, scale + count, 1e-4f);
    for (const bool coding : {false, true}) {
        for (int b = 0; b < batch; ++b)
            for (int t = 0; t < tokens; ++t)
                for (int h = 0; h < heads; ++h) {
                    const size_t at = ((static_cast<size_t>(b) * tokens + t) * heads + h) * head_dim;
                    turn(static_cast<const uint16_t*>(x) + at, signs, head_dim, rotated != 0, y);
                    float& own = scale[place(b, t, h)];
                    for (int i = 0; i < head_dim; ++i) {
                        if (!coding) {
                            own = std::max(own, std::fabs(y[i]));
                            continue;
                        }
                        const uint8_t code = float_to_fp8(y[i] / own);
                        codes[at + i] = code == 0x80 ? 0 : code;
                    }
                }
        if (!coding)
            for (size_t i = 0; i < count; ++i) scale[i] /= largest;
    }
    return kOk;
}
