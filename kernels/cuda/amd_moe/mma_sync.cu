// SPDX-License-Identifier: MIT
//!KERNEL summary mma.sync router, rows sorted by expert, grouped fp16 products with a fused SwiGLU, combine in a fixed order
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  moe/product.h (Copies)
//   main loop      moe/product.h (WarpTile)
//   epilogue       this file (expand, reduce, combine)
//
// Mixture of experts without Hopper's own units: softmax router, the best experts of each token, one expert that all share.
//
//   1 choose_experts   scores of 16 tokens per block by mma.sync, columns cut among eight warps; softmax and choice by warps
//   2 list_rows        a block per expert lists its tokens: pairs (token, expert) become rows, in the order of experts; the
//                      shared expert's rows are all tokens, with weight 1
//   3 expand           h = silu(x gate) * (x up), grouped over experts: 128 rows by 64 columns of both matrices
//   4 reduce           h down, times the pair's router weight, 128 x 128
//   5 combine          y = the sum of a token's rows, in fp32, in the order of its choices
//
// No step depends on which block comes first: results repeat to the bit. Products: eight warps, a ring of three stages of 32
// values of K filled by cp.async, 48 KB; A's rows are gathered by the token's number, matrices are read as they lie and
// transposed by ldmatrix. A block finds its tile from the row counts on the device: the host launches as many as there can be.
//
// Workspace: h and the experts' results, fp16, a row for each pair: what problems/amd_moe/binding.py counts.
//
// Shapes. hidden and inner multiples of 64, up to 63 experts. Tensors 16-byte aligned, offsets multiples of 8.
//
// Limits. On Hopper mma.sync reaches about 60 % of wgmma's rate. Results of all pairs go to memory once and come back.

#include "kernel.h"

#include <cstdint>

#include "ceil_div.h"
#include "gemm/scheduler.h"
#include "launch.h"
#include "room.h"
#include "moe/product.h"
#include "moe/routes.h"

using namespace moe;

namespace {

constexpr int kBand = 8;  // row tiles that share columns of an expert's matrix in L2

struct Layer {
    const uint16_t* x;
    const uint16_t* gate;
    const uint16_t* up;
    const uint16_t* down;
    const int64_t* offsets;
    uint16_t* y;
    uint16_t* h;      // [rows, inner]
    uint16_t* parts;  // [rows, hidden]
    Routes routes;
    int hidden, inner;

    /// Matrix `which` (0 gate, 1 up, 2 down) of an expert.
    __device__ __forceinline__ const uint16_t* matrix(const uint16_t* base, int which, int expert) const {
        return base + offsets[which * (routes.experts + 1) + expert];
    }
};

/// A block's tile: rows [first, first + rows) of the list, and its column tile.
struct Place {
    int expert, first, rows, tile_n;

    __device__ __forceinline__ bool find(const Routes& routes, int tiles_n) {
        ExpertTile found;
        if (!find_tile(routes, kRows, tiles_n, static_cast<int>(blockIdx.x), found)) return false;
        int tile_m;
        gemm::tile_position(found.index, kBand, found.tiles_m, tiles_n, tile_m, tile_n);
        expert = found.expert;
        first = found.first + tile_m * kRows;
        rows = min(found.rows - tile_m * kRows, kRows);
        return true;
    }
};

__device__ __forceinline__ float silu(float a) { return a / (1.0f + Exp2{}(-a * kLog2E)); }

/// h = silu(x gate) * (x up) of 128 rows and 64 columns.
__global__ void __launch_bounds__(kThreads, 2) expand(const Layer layer) {
    Place place;
    if (!place.find(layer.routes, layer.inner / 64)) return;
    const int column = place.tile_n * 64;
    Copies copies;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = Copies::a_row(i);
        copies.a[i] = nullptr;
        if (row >= place.rows) continue;
        const size_t token = layer.routes.token_of[place.first + row];
        copies.a[i] = layer.x + token * layer.hidden + Copies::a_chunk() * 8;
    }
    copies.of_b(
        {layer.matrix(layer.gate, 0, place.expert) + column, layer.matrix(layer.up, 1, place.expert) + column},
        {64, 64}, layer.inner);
    WarpTile<true> warp;
    warp.run(copies, layer.hidden / kK);

#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t pair[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float* const gate = warp.sum[i][j] + half * 2;
                const float* const up = warp.sum[i][j + 4] + half * 2;
                pair[j] = Fp16::pack(silu(gate[0]) * up[0], silu(gate[1]) * up[1]);
            }
            const int row = warp.row(i, half);
            uint16_t* const to =
                layer.h + static_cast<size_t>(place.first + row) * layer.inner + column + warp.column(0);
            store_row(to, pair, warp.lane, row < place.rows);
        }
    }
}

/// The expert's result times the router's weight, 128 rows and columns.
__global__ void __launch_bounds__(kThreads, 2) reduce(const Layer layer) {
    Place place;
    if (!place.find(layer.routes, ceil_div(layer.hidden, kPanels * kPanelColumns))) return;
    const int column = place.tile_n * kPanels * kPanelColumns;
    Copies copies;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = Copies::a_row(i);
        const uint16_t* const from =
            layer.h + static_cast<size_t>(place.first + row) * layer.inner + Copies::a_chunk() * 8;
        copies.a[i] = row < place.rows ? from : nullptr;
    }
    const uint16_t* const down = layer.matrix(layer.down, 2, place.expert) + column;
    copies.of_b(
        {down, down + kPanelColumns}, {layer.hidden - column, layer.hidden - column - kPanelColumns}, layer.hidden);
    WarpTile<false> warp;
    warp.run(copies, layer.inner / kK);

    const int first = column + warp.warp_n * kPanelColumns;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp.row(i, half);
            const bool valid = row < place.rows && first < layer.hidden;
            const float weight = valid ? layer.routes.row_weight[place.first + row] : 0.0f;
            uint16_t* const to = layer.parts + static_cast<size_t>(place.first + row) * layer.hidden + first;
#pragma unroll
            for (int j = 0; j < WarpTile<false>::kTiles; j += 4) {
                uint32_t pair[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const float* const sum = warp.sum[i][j + k] + half * 2;
                    pair[k] = Fp16::pack(sum[0] * weight, sum[1] * weight);
                }
                store_row(to + j * 8, pair, warp.lane, valid);
            }
        }
    }
}

constexpr int kCombineColumns = 8;  // of a thread

/// Add eight halves to fp32 sums.
__device__ __forceinline__ void add_halves(float (&sum)[kCombineColumns], const uint4& x) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float low, high;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
            : "=f"(low), "=f"(high)
            : "r"(words[i]));
        sum[2 * i] += low;
        sum[2 * i + 1] += high;
    }
}

/// y of one token, as fp32 sums of its rows.
__global__ void __launch_bounds__(kThreads) combine(const Layer layer) {
    const int column = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * kCombineColumns;
    if (column >= layer.hidden) return;
    const size_t token = blockIdx.y;
    const int slots = layer.routes.chosen + 1;
    float sum[kCombineColumns] = {};
    for (int slot = 0; slot < slots; ++slot) {
        const size_t row = layer.routes.row_of[token * slots + slot];
        add_halves(sum, *reinterpret_cast<const uint4*>(layer.parts + row * layer.hidden + column));
    }
    *reinterpret_cast<uint4*>(layer.y + token * layer.hidden + column) = make_uint4(
        Fp16::pack(sum[0], sum[1]), Fp16::pack(sum[2], sum[3]), Fp16::pack(sum[4], sum[5]), Fp16::pack(sum[6], sum[7]));
}

void launch_router(const Layer& layer, const uint16_t* router, void* queue) {
    const dim3 grid(ceil_div(layer.routes.tokens, kRouteTokens));
    const auto kernel = layer.routes.experts <= 8    ? choose_experts<1>
                        : layer.routes.experts <= 32 ? choose_experts<4>
                                                     : choose_experts<8>;
    LAUNCH(kernel, grid, dim3(kRouteWarps * 32), 0, queue)(layer.x, router, layer.routes, layer.hidden);
}

}  // namespace

extern "C" int amd_moe(
    const void* x, const void* router, const void* gate, const void* up, const void* down, const int64_t* offsets,
    void* y, int tokens, int hidden, int inner, int experts, int chosen, void* workspace, size_t workspace_bytes,
    void* queue) {
    if (tokens < 1 || hidden < 64 || inner < 64 || hidden % 64 != 0 || inner % 64 != 0) return kUnsupportedShape;
    if (experts < 1 || experts > kMaxExperts || chosen < 1 || chosen > experts) return kUnsupportedShape;
    if (tokens > 65535) return kUnsupportedShape;  // a grid's second dimension

    const size_t rows = static_cast<size_t>(tokens) * (chosen + 1), pairs = static_cast<size_t>(tokens) * chosen;
    Room room(workspace, workspace_bytes);
    const Layer layer = {
        static_cast<const uint16_t*>(x),
        static_cast<const uint16_t*>(gate),
        static_cast<const uint16_t*>(up),
        static_cast<const uint16_t*>(down),
        offsets,
        static_cast<uint16_t*>(y),
        room.take<uint16_t>(rows * inner),
        room.take<uint16_t>(rows * hidden),
        {room.take<int>(pairs), room.take<float>(pairs), room.take<int>(rows), room.take<int>(rows),
         room.take<float>(rows), room.take<int>(experts + 2), tokens, experts, chosen},
        hidden,
        inner};
    if (!room.enough()) return kWorkspaceTooSmall;

    launch_router(layer, static_cast<const uint16_t*>(router), queue);
    LAUNCH(list_rows, dim3(experts + 1), dim3(kListThreads), 0, queue)(layer.routes);
    // Every expert may end in a tile that is not full, and no more experts have rows than there are pairs.
    const int used = experts < tokens * chosen ? experts : tokens * chosen;
    const int row_tiles = tokens * chosen / kRows + used + ceil_div(tokens, kRows);
    LAUNCH(expand, dim3(row_tiles * (inner / 64)), dim3(kThreads), kSharedBytes, queue)(layer);
    LAUNCH(reduce, dim3(row_tiles * ceil_div(hidden, 128)), dim3(kThreads), kSharedBytes, queue)(layer);
    const dim3 sums(ceil_div(hidden, kThreads * kCombineColumns), tokens);
    LAUNCH(combine, sums, dim3(kThreads), 0, queue)(layer);
    return LAUNCH_STATUS();
}
