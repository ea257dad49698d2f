// SPDX-License-Identifier: MIT
//!KERNEL summary a mixture-of-experts layer in plain loops: a token at a time, its experts one after the other, all fp32
//
// The kernel that runs anywhere: it proves the pipeline and is the readable statement of what the GPU kernels compute. One
// thread, no workspace; host memory for one token. Supports any sizes. Expect a few GFLOP/s.
#include "kernel.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8.h"
#include "status.h"
#include "tile/axpy.h"

namespace {

/// out += row of `columns` fp16 values, times `factor`; 64 columns at a time.
void add_row(const uint16_t* row, float factor, float* out, int columns) {
    float values[64];
    for (int first = 0; first < columns; first += 64) {
        for (int i = 0; i < 64; ++i) values[i] = fp16_to_float(row[first + i]);
        axpy<64>(out + first, factor, values);
    }
}

/// out[columns] = x[rows] times the matrix [rows, columns].
void multiply(const uint16_t* matrix, const float* x, float* out, int rows, int columns) {
    for (int c = 0; c < columns; ++c) out[c] = 0.0f;
    for (long r = 0; r < rows; ++r) add_row(matrix + r * columns, x[r], out, columns);
}

/// softmax(router x), for one token.
std::vector<float> router_weights(const uint16_t* router, const std::vector<float>& x, int experts) {
    std::vector<float> weights(experts);
    float maximum = -INFINITY, sum = 0.0f;
    for (long e = 0; e < experts; ++e) {
        const uint16_t* const row = router + e * static_cast<long>(x.size());
        for (size_t i = 0; i < x.size(); ++i) weights[e] += fp16_to_float(row[i]) * x[i];
        maximum = std::fmax(maximum, weights[e]);
    }
    for (float& weight : weights) sum += weight = std::exp(weight - maximum);
    for (float& weight : weights) weight /= sum;
    return weights;
}

/// Sets all weights but the `chosen` largest to zero; of equal ones the first stay.
void keep_largest(std::vector<float>& weights, int chosen) {
    std::vector<float> kept(weights.size(), 0.0f);
    std::vector<bool> taken(weights.size(), false);
    for (int i = 0; i < chosen; ++i) {
        size_t best = weights.size();
        for (size_t e = 0; e < weights.size(); ++e)
            if (!taken[e] && (best == weights.size() || weights[e] > weights[best])) best = e;
        taken[best] = true;
        kept[best] = weights[best];
    }
    weights = kept;
}

}  // namespace

extern "C" int amd_moe(
    const void* x, const void* router, const void* gate, const void* up, const void* down, const int64_t* offsets,
    void* y, int tokens, int hidden, int inner, int experts, int chosen, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (tokens <= 0 || hidden <= 0 || inner <= 0 || hidden % 64 != 0 || inner % 64 != 0) return kUnsupportedShape;
    if (experts <= 0 || chosen <= 0 || chosen > experts) return kUnsupportedShape;

    const int count = experts + 1;
    const auto matrix = [&](const void* base, int which, int expert) {
        return static_cast<const uint16_t*>(base) + offsets[which * count + expert];
    };
    std::vector<float> input(hidden), gated(inner), lifted(inner), part(hidden), sum(hidden);
    for (long t = 0; t < tokens; ++t) {
        for (int i = 0; i < hidden; ++i) input[i] = fp16_to_float(static_cast<const uint16_t*>(x)[t * hidden + i]);
        std::vector<float> weights = router_weights(static_cast<const uint16_t*>(router), input, experts);
        keep_largest(weights, chosen);
        weights.push_back(1.0f);  // of the shared expert
        sum.assign(hidden, 0.0f);
        for (int e = 0; e < count; ++e) {
            if (weights[e] == 0.0f) continue;
            multiply(matrix(gate, 0, e), input.data(), gated.data(), hidden, inner);
            multiply(matrix(up, 1, e), input.data(), lifted.data(), hidden, inner);
            for (int i = 0; i < inner; ++i) gated[i] = gated[i] / (1.0f + std::exp(-gated[i])) * lifted[i];
            multiply(matrix(down, 2, e), gated.data(), part.data(), inner, hidden);
            for (int i = 0; i < hidden; ++i) sum[i] += weights[e] * part[i];
        }
        for (int i = 0; i < hidden; ++i) static_cast<uint16_t*>(y)[t * hidden + i] = float_to_fp16(sum[i]);
    }
    return kOk;
}
