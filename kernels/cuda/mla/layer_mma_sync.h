// SPDX-License-Identifier: MIT
// The products of an MLA layer on mma.sync: tiles of 128 x 128 outputs, K cut into parts where tiles are few.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "common/bf16_product.h"
#include "launch.h"
#include "mla/layer_product.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"
#include "split_kv.h"
#include "status.h"

namespace mla {

/// How K is cut: part i has `steps` steps of product::kStep from i * steps on. With more than one part each writes its plane,
/// [count, m, n] fp32, and a second kernel adds them up.
struct ProductParts {
    float* planes;
    int parts, steps;
};

/// Tile (blockIdx.x, blockIdx.y) of part blockIdx.z % parts of product blockIdx.z / parts.
template <bool kPlain>
__global__ void __launch_bounds__(product::kThreads)
    tile_product(const __grid_constant__ LayerProduct p, const __grid_constant__ ProductParts cut) {
    const int column = static_cast<int>(blockIdx.x) * product::kTile,
              row = static_cast<int>(blockIdx.y) * product::kTile;
    const int number = static_cast<int>(blockIdx.z) / cut.parts, part = static_cast<int>(blockIdx.z) % cut.parts;
    const int first = part * cut.steps * product::kStep, k = min(cut.steps * product::kStep, p.k - first);
    const size_t x_at = static_cast<size_t>(number * p.x_step + row * p.x_pitch + first);
    const size_t w_at =
        static_cast<size_t>(number * p.w_step + (kPlain ? first * p.w_pitch + column : column * p.w_pitch + first));
    const product::Operand x = {
        static_cast<const uint8_t*>(p.x) + x_at * 2, static_cast<size_t>(p.x_pitch) * 2, min(product::kTile, p.m - row),
        k};
    const product::Operand w = {
        static_cast<const uint8_t*>(p.w) + w_at * 2, static_cast<size_t>(p.w_pitch) * 2,
        min(product::kTile, p.n - column), k};
    product::Share share;
    product::multiply<false, kPlain>(share, x, w, k, shared_address(dynamic_shared()));

    const size_t plane = static_cast<size_t>(p.count) * p.m * p.n;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int in_tile = product::Share::row(i, 2 * half);
            if (in_tile >= x.outputs) continue;
            const size_t at_row = static_cast<size_t>(number) * p.m + row + in_tile;
            float* const sums = cut.planes + part * plane + at_row * p.n + column;
            uint16_t* const y = static_cast<uint16_t*>(p.y) + number * p.y_step + (row + in_tile) * p.y_pitch + column;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int to = product::Share::column(j, 0);
                if (to >= w.outputs) continue;
                const float left = share.sums[i][j][2 * half], right = share.sums[i][j][2 * half + 1];
                if (cut.parts > 1) *reinterpret_cast<float2*>(sums + to) = make_float2(left, right);
                else *reinterpret_cast<uint32_t*>(y + to) = Bf16::pack(left, right);
            }
        }
    }
}

constexpr int kPartThreads = 256;

/// Two neighbouring outputs a thread: the sum of their parts, in order.
__global__ void __launch_bounds__(kPartThreads)
    add_parts(const __grid_constant__ LayerProduct p, const __grid_constant__ ProductParts cut) {
    const long long pair = static_cast<long long>(blockIdx.x) * kPartThreads + threadIdx.x;
    const long long all = static_cast<long long>(p.count) * p.m * p.n;
    if (pair * 2 >= all) return;
    float2 sum = {0.0f, 0.0f};
    for (int part = 0; part < cut.parts; ++part) {
        const float2 x = *reinterpret_cast<const float2*>(cut.planes + part * all + pair * 2);
        sum.x += x.x;
        sum.y += x.y;
    }
    const long long row = pair * 2 / p.n, column = pair * 2 % p.n;
    uint16_t* const y = static_cast<uint16_t*>(p.y) + row / p.m * p.y_step + row % p.m * p.y_pitch + column;
    *reinterpret_cast<uint32_t*>(y) = Bf16::pack(sum.x, sum.y);
}

/// n and k are multiples of 8, rows begin at multiples of 16 bytes. `planes` has room for `bytes`. Returns the vendor's status or
/// a KernelStatus.
template <bool kPlain>
int launch_tile_product(const LayerProduct& p, int multiprocessors, float* planes, size_t bytes, void* queue) {
    const auto kernel = tile_product<kPlain>;
    const cudaError_t set =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, product::kSharedBytes);
    if (set != cudaSuccess) return static_cast<int>(set);
    const int columns = ceil_div(p.n, product::kTile), rows = ceil_div(p.m, product::kTile);
    const int steps = ceil_div(p.k, product::kStep);
    const size_t plane = static_cast<size_t>(p.count) * p.m * p.n * sizeof(float);
    // In steps of K: a block's first copy and its stores; the second kernel, and what it reads of a part.
    const SplitCost cost = {3.0, 6.0, 0.2};
    const long long tiles = static_cast<long long>(columns) * rows * p.count;
    const int parts = choose_splits(tiles, steps, multiprocessors, static_cast<long long>(bytes / plane), cost);
    const ProductParts cut = {planes, parts, ceil_div(steps, parts)};
    if (rows > 65535 || static_cast<long long>(p.count) * parts > 65535) return kUnsupportedShape;
    const dim3 grid(
        static_cast<unsigned>(columns), static_cast<unsigned>(rows), static_cast<unsigned>(p.count * parts));
    LAUNCH(kernel, grid, dim3(product::kThreads), product::kSharedBytes, queue)(p, cut);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || parts == 1) return launched;
    const long long pairs = static_cast<long long>(p.count) * p.m * p.n / 2;
    LAUNCH(
        add_parts, dim3(static_cast<unsigned>(ceil_div<long long>(pairs, kPartThreads))), dim3(kPartThreads), 0, queue)
    (p, cut);
    return LAUNCH_STATUS();
}

}  // namespace mla
