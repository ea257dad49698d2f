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
//   3 plan_tiles       which tiles of the two products each workgroup multiplies
//   4 expand           h = silu(x gate) * (x up), grouped over experts: up to 256 rows by 128 columns of both matrices
//   5 reduce           h down, up to 256 x 256
//   6 combine          y = the sum of a token's rows times the router's weights, in fp32, in the order of its choices
//
// No step depends on which workgroup comes first: results repeat to the bit. Products are tile/half_overlapped.h's: matrices are
// read as they lie, K outermost, and transposed in registers on the way into LDS; rows of x are gathered by the token's number.
//
//   kernel           threads  LDS bytes  workgroups per compute unit
//   expand, reduce   512      65 536     1
//
// Workspace: h and the experts' results, fp16, a row for each pair: what problems/amd_moe/binding.py counts.
//
// Shapes. hidden and inner multiples of 64, up to 63 experts, tokens * hidden * 2 bytes below 2 GiB. Tensors 16-byte aligned,
// offsets multiples of 8.
//
// Limits. Results of all pairs go to memory once and come back (587 MB each way at 8192 tokens), and where one tile ends the next
// one waits until they are on their way. Rows come in units of 64: half of one is lost for each expert.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"
#include "room.h"

#include "amd_moe/plan.h"
#include "amd_moe/routes.h"
#include "tile/half_overlapped.h"

namespace {

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
    TilePlan expand, reduce;
    int hidden, inner;

    /// Matrix `which` (0 gate, 1 up, 2 down) of an expert.
    __device__ __forceinline__ const uint16_t* matrix(const uint16_t* base, int which, int expert) const {
        return base + offsets[which * (routes.experts + 1) + expert];
    }
    /// Rows of an array of all pairs' rows, from a tile's first one on.
    static __device__ __forceinline__ BufferResource rows_of(const uint16_t* array, const ExpertTile& tile, int pitch) {
        const size_t first = static_cast<size_t>(tile.first) * static_cast<size_t>(pitch);
        return make_buffer(array + first, tile.count * pitch * 2);
    }
};

__device__ __forceinline__ float silu(float a) { return a * __builtin_amdgcn_rcpf(1.0f + exp2_approx(-a * kLog2E)); }

/// Tiles of h: rows of x by gate's and up's same 128 columns.
struct ExpandTiles : ExpertTiles {
    using Tile = ExpertTile;
    const Layer& layer;

    __device__ __forceinline__ explicit ExpandTiles(const Layer& layer) : ExpertTiles(layer.expand), layer(layer) {}

    __device__ __forceinline__ int pitch_b() const { return layer.inner; }
    __device__ __forceinline__ int row_offset(const Tile& tile, int row) const {
        return row < tile.count ? layer.routes.token_of[tile.first + row] * layer.hidden * 2 : kOutside;
    }
    __device__ __forceinline__ TileOperands operands(const Tile& tile, bool there) const {
        const bool up = is_late();
        const uint16_t* const matrix = layer.matrix(up ? layer.up : layer.gate, up, tile.expert);
        const int column = tile.column * kTileHalf;
        return {
            make_buffer(layer.x, layer.routes.tokens * layer.hidden * 2), matrix + column, layer.inner - column,
            tile.units, there};
    }
    template <class Sums>
    __device__ __forceinline__ void store(const Tile& tile, const Sums& sums) const {
        const int column = tile.column * kTileHalf + sums.column();
        sums.store(
            Layer::rows_of(layer.h, tile, layer.inner), layer.inner * 2, column * 2, layer.inner - column,
            [&](int unit, int i) {
            u32x4 packed;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const f32x4 gate = sums.sum[unit][0][2 * i + k / 2], up = sums.sum[unit][1][2 * i + k / 2];
                const int at = k % 2 * 2;
                packed[k] = Fp16::pack(silu(gate[at]) * up[at], silu(gate[at + 1]) * up[at + 1]);
            }
            return packed;
        });
    }
};

/// Tiles of an expert's results: rows of h by 256 columns of down.
struct ReduceTiles : ExpertTiles {
    using Tile = ExpertTile;
    const Layer& layer;

    __device__ __forceinline__ explicit ReduceTiles(const Layer& layer) : ExpertTiles(layer.reduce), layer(layer) {}

    __device__ __forceinline__ int pitch_b() const { return layer.hidden; }
    __device__ __forceinline__ int row_offset(const Tile& tile, int row) const {
        return row < tile.count ? row * layer.inner * 2 : kOutside;
    }
    __device__ __forceinline__ TileOperands operands(const Tile& tile, bool there) const {
        const int column = tile.column * kTileColumns + is_late() * kTileHalf;
        return {
            Layer::rows_of(layer.h, tile, layer.inner), layer.matrix(layer.down, 2, tile.expert) + column,
            layer.hidden - column, tile.units, there};
    }
    template <class Sums>
    __device__ __forceinline__ void store(const Tile& tile, const Sums& sums) const {
        const BufferResource to = Layer::rows_of(layer.parts, tile, layer.hidden);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = tile.column * kTileColumns + half * kTileHalf + sums.column();
            sums.store(to, layer.hidden * 2, column * 2, layer.hidden - column, [&](int unit, int i) {
                u32x4 packed;
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const f32x4 value = sums.sum[unit][half][2 * i + k / 2];
                    packed[k] = Fp16::pack(value[k % 2 * 2], value[k % 2 * 2 + 1]);
                }
                return packed;
            });
        }
    }
};

/// h = silu(x gate) * (x up).
__global__ void __launch_bounds__(kTileThreads, 2) expand(Layer layer) {
    __shared__ TileLds lds;
    ExpandTiles tiles(layer);
    multiply_tiles<Fp16>(lds, tiles, layer.hidden / kPanelK);
}

/// The experts' results.
__global__ void __launch_bounds__(kTileThreads, 2) reduce(Layer layer) {
    __shared__ TileLds lds;
    ReduceTiles tiles(layer);
    multiply_tiles<Fp16>(lds, tiles, layer.inner / kPanelK);
}

constexpr int kCombineThreads = 256;
constexpr int kCombineColumns = 8;  // of a thread

/// y of one token, as fp32 sums of its rows.
__global__ void __launch_bounds__(kCombineThreads) combine(Layer layer) {
    typedef _Float16 f16x8 __attribute__((vector_size(16), may_alias));
    const int column =
        (static_cast<int>(blockIdx.x) * kCombineThreads + static_cast<int>(threadIdx.x)) * kCombineColumns;
    if (column >= layer.hidden) return;
    const int token = static_cast<int>(blockIdx.y), slots = layer.routes.chosen + 1;
    float sum[kCombineColumns] = {};
    for (int slot = 0; slot < slots; ++slot) {
        const bool shared = slot == layer.routes.chosen;
        const float weight = shared ? 1.0f : layer.routes.weight_of[token * layer.routes.chosen + slot];
        const size_t row = static_cast<size_t>(uniform(layer.routes.row_of[token * slots + slot]));
        const f16x8 part =
            *reinterpret_cast<const f16x8*>(layer.parts + row * static_cast<size_t>(layer.hidden) + column);
#pragma unroll
        for (int i = 0; i < kCombineColumns; ++i) sum[i] += weight * static_cast<float>(part[i]);
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
        nullptr,
        {room.take<int>(pairs), room.take<float>(pairs), room.take<int>(rows), room.take<int>(rows),
         room.take<int>(static_cast<size_t>(experts) + 2), tokens, experts, chosen},
        {},
        {},
        hidden,
        inner};
    const auto planned = [&](int columns) {
        const int capacity = plan_capacity(static_cast<long long>(rows), experts, columns);
        return TilePlan{nullptr, room.take<int>(kWorkgroups), columns, capacity};
    };
    layer.expand = planned(ceil_div(inner, kTileHalf)), layer.reduce = planned(ceil_div(hidden, kTileColumns));
    layer.reduce.tiles = room.take<PlannedTile>(static_cast<size_t>(layer.reduce.capacity) * kDies);
    // The first product's plan lies where the second one's results will.
    const size_t results = rows * static_cast<size_t>(hidden) * sizeof(uint16_t);
    const size_t plan = static_cast<size_t>(layer.expand.capacity) * kDies * sizeof(PlannedTile);
    uint8_t* const parts = room.take<uint8_t>(results > plan ? results : plan);
    layer.parts = reinterpret_cast<uint16_t*>(parts), layer.expand.tiles = reinterpret_cast<PlannedTile*>(parts);
    if (!room.enough()) return kWorkspaceTooSmall;

    launch_router(layer, static_cast<const uint16_t*>(router), queue);
    LAUNCH(list_rows, dim3(static_cast<unsigned>(experts) + 1), dim3(kListThreads), 0, queue)(layer.routes);
    LAUNCH(plan_tiles, dim3(2 * kDies), dim3(kWaveSize), 0, queue)(layer.routes, layer.expand, layer.reduce);
    const dim3 units(kWorkgroups), threads(kTileThreads);
    LAUNCH(expand, units, threads, 0, queue)(layer);
    LAUNCH(reduce, units, threads, 0, queue)(layer);
    const dim3 sums(
        static_cast<unsigned>(ceil_div(hidden, kCombineThreads * kCombineColumns)), static_cast<unsigned>(tokens));
    LAUNCH(combine, sums, dim3(kCombineThreads), 0, queue)(layer);
    return LAUNCH_STATUS();
}
