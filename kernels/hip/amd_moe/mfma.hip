// SPDX-License-Identifier: MIT
//!KERNEL summary MFMA router, rows sorted by expert, grouped fp16 products with a fused SwiGLU, combine in a fixed order
//!KERNEL arch gfx942
//
// Mixture of experts for MI300 (CDNA3): softmax router, the best experts of each token, one expert that all tokens share.
//
//   1 choose_experts   scores of 16 tokens per workgroup by MFMA 16x16x16, columns cut among eight waves; a wave per token takes
//                      the softmax and the largest ones, an expert to a lane
//   2 list_rows        a workgroup per expert lists its tokens: pairs (token, expert) become rows, in the order of experts; the
//                      shared expert's rows are all tokens, with weight 1
//   3 expand           h = silu(x gate) * (x up), grouped over experts: 128 rows by 64 columns of both matrices
//   4 reduce           h down, times the pair's router weight, 128 x 128
//   5 combine          y = the sum of a token's rows, in fp32, in the order of its choices
//
// No step depends on which workgroup comes first: results repeat to the bit. Products are tile/half_gemm.h's: matrices are read
// as they lie, K outermost, and transposed in registers on the way into LDS; rows of x are gathered by the token's number.
// A workgroup finds its tile from the row counts on the device: the host launches as many as there can be, the rest ends.
//
//   kernel           threads  LDS bytes  workgroups per compute unit
//   expand, reduce   256      32 768     2
//
// Workspace: h and the experts' results, fp16, a row for each pair: what problems/amd_moe/binding.py counts.
//
// Shapes. hidden and inner multiples of 64, up to 63 experts, tokens * hidden * 2 bytes below 2 GiB. Tensors 16-byte aligned,
// offsets multiples of 8.
//
// Limits. Results of all pairs go to memory once and come back (587 MB each way at 8192 tokens). Tiles of few rows cost as
// much as full ones. One LDS buffer, as in tile/block_scaled_gemm.h.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"
#include "room.h"

#include "amd_moe/routes.h"
#include "tile/grid.h"
#include "tile/half_gemm.h"

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

/// This workgroup's tile; false where it has none.
__device__ __forceinline__ bool take_tile(const Layer& layer, int tiles_n, ExpertTile& rows, TileIndex& tile) {
    const TileList tiles(layer.routes, kHalfRows, tiles_n);
    if (static_cast<int>(blockIdx.x) >= tiles.count) return false;
    rows = tiles.at(layer.routes, die_contiguous(tiles.count));
    tile = banded_tile<kBand>(rows.index, rows.tiles_m, tiles_n);
    rows.first += tile.m * kHalfRows;
    rows.count -= tile.m * kHalfRows;
    if (rows.count > kHalfRows) rows.count = kHalfRows;
    return true;
}

__device__ __forceinline__ float silu(float a) { return a * __builtin_amdgcn_rcpf(1.0f + exp2_approx(-a * kLog2E)); }

/// h = silu(x gate) * (x up) of 128 rows and 64 columns.
__global__ void __launch_bounds__(kHalfThreads, 2) expand(Layer layer) {
    __shared__ HalfLds lds;
    ExpertTile rows;
    TileIndex tile;
    if (!take_tile(layer, layer.inner / 64, rows, tile)) return;

    const int pitch = layer.hidden * 2;
    const RowsA a(make_buffer(layer.x, layer.routes.tokens * pitch), [&](int row) {
        return row < rows.count ? layer.routes.token_of[rows.first + row] * pitch : kOutside;
    });
    const OutermostB<true> b(
        layer.matrix(layer.gate, 0, rows.expert), layer.matrix(layer.up, 1, rows.expert), tile.n * 64, layer.inner,
        layer.inner);
    HalfTile<Fp16> wave;
    wave.run(lds, a, b, 0, layer.hidden / kHalfBlockK);

    const size_t origin = static_cast<size_t>(rows.first) * static_cast<size_t>(layer.inner);
    const BufferResource to = make_buffer(layer.h + origin, rows.count * layer.inner * 2);
    const int column = tile.n * 64 + wave.column() / 2;
#pragma unroll
    for (int m = 0; m < HalfTile<Fp16>::kTiles; ++m) {
        u32x4 packed;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int n = i / 2, at = i % 2 * 2;
            packed[i] = Fp16::pack(
                silu(wave.sum[m][n][at]) * wave.sum[m][n + 2][at],
                silu(wave.sum[m][n][at + 1]) * wave.sum[m][n + 2][at + 1]);
        }
        buffer_store_16(to, (wave.row(m) * layer.inner + column) * 2, packed);
    }
}

/// The expert's result times the router's weight, 128 rows and columns.
__global__ void __launch_bounds__(kHalfThreads, 2) reduce(Layer layer) {
    __shared__ HalfLds lds;
    ExpertTile rows;
    TileIndex tile;
    if (!take_tile(layer, (layer.hidden + kHalfColumns - 1) / kHalfColumns, rows, tile)) return;

    const int pitch = layer.inner * 2;
    const size_t first = static_cast<size_t>(rows.first);
    const RowsA a(make_buffer(layer.h + first * static_cast<size_t>(layer.inner), rows.count * pitch), [&](int row) {
        return row < rows.count ? row * pitch : kOutside;
    });
    const OutermostB<false> b(
        layer.matrix(layer.down, 2, rows.expert), nullptr, tile.n * kHalfColumns, layer.hidden, layer.hidden);
    HalfTile<Fp16> wave;
    wave.run(lds, a, b, 0, layer.inner / kHalfBlockK);

    const BufferResource to =
        make_buffer(layer.parts + first * static_cast<size_t>(layer.hidden), rows.count * layer.hidden * 2);
    const int column = tile.n * kHalfColumns + wave.column();
#pragma unroll
    for (int m = 0; m < HalfTile<Fp16>::kTiles; ++m) {
        const int row = wave.row(m);
        const float weight = row < rows.count ? layer.routes.row_weight[rows.first + row] : 0.0f;
#pragma unroll
        for (int n = 0; n < HalfTile<Fp16>::kTiles; ++n) wave.sum[m][n] *= weight;
        const int offset = row < rows.count ? (row * layer.hidden + column) * 2 : kOutside;
        store_halves<Fp16>(to, offset, wave.sum[m], layer.hidden - column);
    }
}

constexpr int kCombineColumns = 8;  // of a thread

/// y of one token, as fp32 sums of its rows.
__global__ void __launch_bounds__(kHalfThreads) combine(Layer layer) {
    typedef _Float16 f16x8 __attribute__((vector_size(16), may_alias));
    const int column = (static_cast<int>(blockIdx.x) * kHalfThreads + static_cast<int>(threadIdx.x)) * kCombineColumns;
    if (column >= layer.hidden) return;
    const int token = static_cast<int>(blockIdx.y), slots = layer.routes.chosen + 1;
    float sum[kCombineColumns] = {};
    for (int slot = 0; slot < slots; ++slot) {
        const size_t row = static_cast<size_t>(uniform(layer.routes.row_of[token * slots + slot]));
        const f16x8 part =
            *reinterpret_cast<const f16x8*>(layer.parts + row * static_cast<size_t>(layer.hidden) + column);
#pragma unroll
        for (int i = 0; i < kCombineColumns; ++i) sum[i] += static_cast<float>(part[i]);
    }
    u32x4 packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = Fp16::pack(sum[2 * i], sum[2 * i + 1]);
    const size_t at = static_cast<size_t>(token) * static_cast<size_t>(layer.hidden) + static_cast<size_t>(column);
    *reinterpret_cast<u32x4*>(layer.y + at) = packed;
}

void launch_router(const Layer& layer, const uint16_t* router, void* queue) {
    const dim3 grid(static_cast<unsigned>(ceil_div(layer.routes.tokens, kRouteTokens)));
    const auto launch = [&](auto kernel) {
        LAUNCH(kernel, grid, dim3(kRouteThreads), 0, queue)(layer.x, router, layer.routes, layer.hidden);
    };
    switch (ceil_div(layer.routes.experts, 16)) {
        case 1: launch(choose_experts<1>); break;
        case 2: launch(choose_experts<2>); break;
        default: launch(choose_experts<4>);
    }
}

}  // namespace

extern "C" int amd_moe(
    const void* x, const void* router, const void* gate, const void* up, const void* down, const int64_t* offsets,
    void* y, int tokens, int hidden, int inner, int experts, int chosen, void* workspace, size_t workspace_bytes,
    void* queue) {
    if (tokens < 1 || hidden < 64 || inner < 64 || hidden % 64 != 0 || inner % 64 != 0) return kUnsupportedShape;
    if (experts < 1 || experts > kMaxExperts || chosen < 1 || chosen > experts) return kUnsupportedShape;
    const long long widest = hidden > inner ? hidden : inner;
    constexpr long long kMost = 0x7fffffe0LL;  // bytes that a buffer descriptor reaches
    if (2LL * tokens * hidden > kMost || 256 * widest > kMost || tokens * (chosen + 1LL) > 0x3fffffff || tokens > 65535)
        return kUnsupportedShape;

    const size_t rows = static_cast<size_t>(tokens) * static_cast<size_t>(chosen + 1);
    const size_t pairs = static_cast<size_t>(tokens) * static_cast<size_t>(chosen);
    Room room(workspace, workspace_bytes);
    Layer layer = {
        static_cast<const uint16_t*>(x),
        static_cast<const uint16_t*>(gate),
        static_cast<const uint16_t*>(up),
        static_cast<const uint16_t*>(down),
        offsets,
        static_cast<uint16_t*>(y),
        room.take<uint16_t>(rows * static_cast<size_t>(inner)),
        room.take<uint16_t>(rows * static_cast<size_t>(hidden)),
        {room.take<int>(pairs), room.take<float>(pairs), room.take<int>(rows), room.take<int>(rows),
         room.take<float>(rows), room.take<int>(static_cast<size_t>(experts) + 2), tokens, experts, chosen},
        hidden,
        inner};
    if (!room.enough()) return kWorkspaceTooSmall;

    launch_router(layer, static_cast<const uint16_t*>(router), queue);
    LAUNCH(list_rows, dim3(static_cast<unsigned>(experts) + 1), dim3(kListThreads), 0, queue)(layer.routes);
    // Every expert but the busiest ends in a tile that is not full, and no more experts have rows than there are pairs.
    const int used = experts < tokens * chosen ? experts : tokens * chosen;
    const long long row_tiles =
        tokens * static_cast<long long>(chosen) / kHalfRows + used + ceil_div(tokens, kHalfRows);
    const auto blocks = [&](int tiles_n) { return dim3(static_cast<unsigned>(row_tiles * tiles_n)); };
    LAUNCH(expand, blocks(inner / 64), dim3(kHalfThreads), 0, queue)(layer);
    LAUNCH(reduce, blocks(ceil_div(hidden, kHalfColumns)), dim3(kHalfThreads), 0, queue)(layer);
    const dim3 sums(
        static_cast<unsigned>(ceil_div(hidden, kHalfThreads * kCombineColumns)), static_cast<unsigned>(tokens));
    LAUNCH(combine, sums, dim3(kHalfThreads), 0, queue)(layer);
    return LAUNCH_STATUS();
}
