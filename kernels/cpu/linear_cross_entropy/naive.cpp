// SPDX-License-Identifier: MIT
//!KERNEL summary loss and gradients of the last layer, token by token, all fp32
//
// The kernel that runs anywhere, and the readable statement of what the GPU kernels compute. Only one token's logits exist
// at a time. One thread, no workspace; host memory for w in fp32, as it is and transposed.
#include "kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "status.h"
#include "tile/axpy.h"

namespace {

constexpr int TILE = 64;

/// y[0, length) += a · x, 64 at a time; `length` is a multiple of 64.
void add_row(float* y, float a, const float* x, size_t length) {
    for (size_t c = 0; c < length; c += TILE) axpy<TILE>(y + c, a, x + c);
}

}  // namespace

extern "C" int linear_cross_entropy(
    const void* x, const void* w, const int* target, void* dx, float* dw, float* loss, int tokens, int hidden,
    int vocab, float smoothing, void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (tokens <= 0 || vocab <= 0 || hidden <= 0 || hidden % TILE != 0) return kUnsupportedShape;
    const uint16_t *xs = static_cast<const uint16_t*>(x), *ws = static_cast<const uint16_t*>(w);
    uint16_t* const dxs = static_cast<uint16_t*>(dx);
    const size_t columns = static_cast<size_t>(vocab), width = static_cast<size_t>(hidden);
    const size_t padded = ceil_div(columns, size_t{TILE}) * TILE;
    std::vector<float> along(columns * width), across(width * padded), logits(padded), row(width), gradient(width);
    for (size_t j = 0; j < columns; ++j)
        for (size_t c = 0; c < width; ++c)
            along[j * width + c] = across[c * padded + j] = bf16_to_float(ws[j * width + c]);

    int counted = 0;
    for (int i = 0; i < tokens; ++i) counted += target[i] >= 0;
    const float share = counted > 0 ? 1.0f / static_cast<float>(counted) : 0.0f;
    const float even = smoothing / static_cast<float>(vocab);
    double total = 0.0;
    std::fill(dw, dw + columns * width, 0.0f);
    for (size_t i = 0; i < static_cast<size_t>(tokens); ++i) {
        gradient.assign(width, 0.0f);
        if (target[i] >= 0) {
            logits.assign(padded, 0.0f);
            for (size_t c = 0; c < width; ++c) {
                row[c] = bf16_to_float(xs[i * width + c]);
                add_row(logits.data(), row[c], &across[c * padded], padded);
            }
            const size_t hit = static_cast<size_t>(target[i]);
            float maximum = logits[0], sum = 0.0f;
            double all = 0.0;
            for (size_t j = 0; j < columns; ++j) maximum = std::max(maximum, logits[j]);
            for (size_t j = 0; j < columns; ++j) {
                sum += std::exp(logits[j] - maximum);
                all += logits[j];
            }
            const float lse = maximum + std::log(sum);
            total += lse - (1.0f - smoothing) * logits[hit] - smoothing * all / vocab;
            for (size_t j = 0; j < columns; ++j) {
                const float p = std::exp(logits[j] - maximum) / sum;
                const float a = (p - even - (j == hit ? 1.0f - smoothing : 0.0f)) * share;
                add_row(gradient.data(), a, &along[j * width], width);
                add_row(dw + j * width, a, row.data(), width);
            }
        }
        for (size_t c = 0; c < width; ++c) dxs[i * width + c] = float_to_bf16(gradient[c]);
    }
    loss[0] = static_cast<float>(total * share);
    return kOk;
}
