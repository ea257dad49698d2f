// SPDX-License-Identifier: MIT
// y = (x + bias) * mask * scale + residual, for both vendors: one pass, eight elements a thread.
#pragma once

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

struct Layer {
    const uint16_t *x, *residual, *bias;
    const unsigned char* mask;
    uint16_t* y;
    int rows, width;
    float scale;

    /// A select, not a product: 0 times infinity is NaN.
    __device__ __forceinline__ uint16_t of(uint16_t x_bits, uint16_t rest, uint16_t bias_bits, bool shown) const {
        const float sum = (Half::load(x_bits) + Half::load(bias_bits)) * scale + Half::load(rest);
        return shown ? Half::store(sum) : rest;
    }
};

constexpr int kLayerThreads = 256, kEach = 8;

/// kWide: width is a multiple of 8 and all addresses of 16 bytes (mask: 8), so eight elements are of one row.
template <bool kWide>
__global__ void __launch_bounds__(kLayerThreads) layer_kernel(Layer layer) {
    const long long count = static_cast<long long>(layer.rows) * layer.width;
    const long long first = (static_cast<long long>(blockIdx.x) * kLayerThreads + threadIdx.x) * kEach;
    if (first >= count) return;
    if (!kWide) {
        const long long end = first + kEach < count ? first + kEach : count;
        for (long long i = first; i < end; ++i)
            layer.y[i] = layer.of(layer.x[i], layer.residual[i], layer.bias[i % layer.width], layer.mask[i] != 0);
        return;
    }
    using Piece = Pack<Half>;
    struct alignas(8) Masks {
        unsigned char values[kEach];
    };
    const Piece x = *reinterpret_cast<const Piece*>(layer.x + first);
    const Piece rest = *reinterpret_cast<const Piece*>(layer.residual + first);
    const Piece bias = *reinterpret_cast<const Piece*>(layer.bias + first % layer.width);
    const Masks mask = *reinterpret_cast<const Masks*>(layer.mask + first);
    Piece out;
#pragma unroll
    for (int j = 0; j < kEach; ++j)
        out.values[j] = layer.of(x.values[j], rest.values[j], bias.values[j], mask.values[j] != 0);
    *reinterpret_cast<Piece*>(layer.y + first) = out;
}

inline int launch_layer(const Layer& layer, void* queue) {
    const long long count = static_cast<long long>(layer.rows) * layer.width;
    const long long blocks = ceil_div<long long>(count, kLayerThreads * kEach);
    if (layer.rows <= 0 || layer.width <= 0 || blocks > 0x7fffffff) return kUnsupportedShape;
    const bool wide = layer.width % kEach == 0 && is_aligned(layer.x) && is_aligned(layer.residual) &&
                      is_aligned(layer.bias) && is_aligned(layer.y) && reinterpret_cast<size_t>(layer.mask) % 8 == 0;
    const auto kernel = wide ? layer_kernel<true> : layer_kernel<false>;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kLayerThreads), 0, queue)(layer);
    return LAUNCH_STATUS();
}
