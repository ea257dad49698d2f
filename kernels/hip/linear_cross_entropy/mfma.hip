// SPDX-License-Identifier: MIT
//!KERNEL summary loss, dx and dw on MFMA 16x16x16 in chunks of tokens, logits made twice and never stored
//!KERNEL arch gfx942
//
// The last layer's loss and its gradients for MI300 (CDNA3).
//
// Algorithm. `survey`: a workgroup makes the logits of 128 tokens and a part of the vocabulary, tile by tile, and keeps each
// token's maximum, sum of exponentials, sum and target logit. `finish`, one workgroup, merges the parts, in order, to a
// log-sum-exp per token, the loss and 1 / n. Then, for as many tokens at a time as the workspace has room for: `weigh` makes
// their logits again and writes a = p - y as bf16, `token_gradient` multiplies it with w to dx, `column_gradient` its transpose
// with x, added to dw. Every sum has one owner and one order: results do not depend on timing.
//
// The rows of the MFMA results are what lies side by side in memory: the vocabulary for logits and a, hidden for dx and dw. So
// a lane's logits belong to one token for each of four tiles, and it stores four neighbours at a time.
//
// Cost. 8 · tokens · hidden · vocab FLOP where 6 are counted; dw is read and written once per chunk.
// Tiles 128 x 128 x 64, four waves, 32 KB of LDS, one step ahead in registers, two barriers a step.
// Shapes: all of kernel.h with vocab below 2^21, 16-byte aligned tensors.
// Limits: dx of few tokens leaves compute units idle; not timed yet on a real MI300.
#include "kernel.h"

#include "ceil_div.h"
#include "last_layer.h"
#include "launch.h"
#include "linear_cross_entropy/product.h"
#include "tile/grid.h"
#include "tile/scores.h"

namespace {

using namespace loss;

constexpr int kFinishThreads = 1024;

struct Call : LastLayer {
    __device__ __forceinline__ Operand tokens_by_hidden(int from) const {
        return {x + offset(from, hidden), hidden * 2, tokens - from, hidden, false};
    }
    __device__ __forceinline__ Operand columns_by_hidden(int from) const {
        return {w + offset(from, hidden), hidden * 2, vocab - from, hidden, false};
    }
    /// Bytes before row `row` of 16-bit rows of `width`.
    static __device__ __forceinline__ size_t offset(int row, int width) {
        return static_cast<size_t>(row) * static_cast<size_t>(width) * 2;
    }
};

__device__ __forceinline__ int tile_of(unsigned block) { return uniform(static_cast<int>(block)) * kTile; }

/// Row::merge with the same row of lane ^ 16 and lane ^ 32.
__device__ __forceinline__ void merge_lanes(LogitRow& row) {
    LogitRow other;
    other.maximum = from_lane_xor_16(row.maximum);
    other.sum = from_lane_xor_16(row.sum);
    other.all = from_lane_xor_16(row.all);
    row.merge(other, Exp2());
    other.maximum = from_lane_xor_32(row.maximum);
    other.sum = from_lane_xor_32(row.sum);
    other.all = from_lane_xor_32(row.all);
    row.merge(other, Exp2());
}

/// A tile's logits of one token into `row`. `left`: columns of the vocabulary from the tile's first one on.
__device__ __forceinline__ void take_logits(
    const Share& share, int j, LogitRow& row, int left, int target, float* hit) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int column = Share::row(i, e);
            const float z = share.sums[i][j][e];
            if (column < left) {
                largest = fmaxf(largest, z * kLog2E);
                row.all += z;
                if (column == target) *hit = z;
            }
        }
    row.raise(largest, Exp2());
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float z = Share::row(i, e) < left ? share.sums[i][j][e] * kLog2E : -INFINITY;
            row.sum += exp2_approx(z - row.shift());
        }
}

/// Parts of 128 tokens and `tiles_per_split` tiles of the vocabulary.
__global__ void __launch_bounds__(kThreads, 2) survey(Call call) {
    __shared__ Panels panels;
    __shared__ float numbers[kTile][3];  // of the waves with the upper half of a tile's vocabulary
    const int first = tile_of(blockIdx.x), split = uniform(static_cast<int>(blockIdx.y));
    const Operand x = call.tokens_by_hidden(first);
    LogitRow rows[4];
    int target[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int token = first + Share::column(j);
        target[j] = token < call.tokens ? call.target[token] : -1;
    }
    const int tiles = ceil_div(call.vocab, kTile);
    const int end = (split + 1) * call.tiles_per_split < tiles ? (split + 1) * call.tiles_per_split : tiles;
    for (int tile = split * call.tiles_per_split; tile < end; ++tile) {
        Share share;
        const int column = tile * kTile;
        multiply(share, call.columns_by_hidden(column), x, call.hidden, panels);
#pragma unroll
        for (int j = 0; j < 4; ++j)
            take_logits(
                share, j, rows[j], call.vocab - column, target[j] < 0 ? -1 : target[j] - column,
                call.hit + first + Share::column(j));
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) merge_lanes(rows[j]);
    const bool writes = lane_id() < 16, upper = wave_id() % 2 == 1;
#pragma unroll
    for (int j = 0; j < 4; ++j)
        if (upper && writes) {
            float* const slot = numbers[Share::column(j)];
            slot[0] = rows[j].maximum;
            slot[1] = rows[j].sum;
            slot[2] = rows[j].all;
        }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int token = first + Share::column(j);
        if (upper || !writes || token >= call.tokens) continue;
        const float* const slot = numbers[Share::column(j)];
        LogitRow other;
        other.maximum = slot[0];
        other.sum = slot[1];
        other.all = slot[2];
        rows[j].merge(other, Exp2());
        rows[j].store(call, split, token);
    }
}

/// lse of every token, the loss, and 1 / n. One workgroup.
__global__ void __launch_bounds__(kFinishThreads) finish(Call call) {
    __shared__ TokenLoss sums[kFinishThreads];
    const int thread = static_cast<int>(threadIdx.x);
    TokenLoss sum = {0.0f, 0.0f};
    for (int token = thread; token < call.tokens; token += kFinishThreads) finish_token(call, token, sum, Exp2());
    sums[thread] = sum;
    for (int width = kFinishThreads / 2; width > 0; width /= 2) {
        __syncthreads();
        if (thread < width) {
            sums[thread].loss += sums[thread + width].loss;
            sums[thread].count += sums[thread + width].count;
        }
    }
    if (thread == 0) finish_loss(call, sums[0]);
}

/// a = p - y of the chunk's tokens, 0 where ignored and beyond the vocabulary.
__global__ void __launch_bounds__(kThreads, 2) weigh(Call call) {
    __shared__ Panels panels;
    const int column = tile_of(blockIdx.x), top = tile_of(blockIdx.y);
    Share share;
    multiply(share, call.columns_by_hidden(column), call.tokens_by_hidden(call.first + top), call.hidden, panels);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int row = top + Share::column(j);
        if (row >= call.rows) continue;
        const int target = call.target[call.first + row];
        const float lse = call.lse[call.first + row];
        uint8_t* const to = call.a + Call::offset(row, call.pitch) + column * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float a[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
                a[e] = logit_gradient(call, share.sums[i][j][e], lse, column + Share::row(i, e), target, Exp2());
            *reinterpret_cast<u32x2*>(to + Share::row(i, 0) * 2) = u32x2{pack_bf16(a[0], a[1]), pack_bf16(a[2], a[3])};
        }
    }
}

/// dx of 128 tokens of the chunk and 128 columns: a w / n.
__global__ void __launch_bounds__(kThreads, 2) token_gradient(Call call) {
    __shared__ Panels panels;
    const int left = tile_of(blockIdx.x), top = tile_of(blockIdx.y);
    const Operand w = {call.w + left * 2, call.hidden * 2, call.hidden - left, call.vocab, true};
    const Operand a = {call.a + Call::offset(top, call.pitch), call.pitch * 2, call.rows - top, call.pitch, false};
    Share share;
    multiply(share, w, a, call.vocab, panels);
    const float factor = call.share[0];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int row = top + Share::column(j);
        uint8_t* const to = call.dx + Call::offset(call.first + row, call.hidden) + left * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const f32x4 x = share.sums[i][j] * factor;
            if (row < call.rows && left + Share::row(i, 0) < call.hidden)
                *reinterpret_cast<u32x2*>(to + Share::row(i, 0) * 2) =
                    u32x2{pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3])};
        }
    }
}

/// What the chunk adds to dw of 128 columns of the vocabulary and 128 of hidden: aᵀ x / n.
__global__ void __launch_bounds__(kThreads, 2) column_gradient(Call call) {
    __shared__ Panels panels;
    const int left = tile_of(blockIdx.x), top = tile_of(blockIdx.y);
    const Operand x = {
        call.x + Call::offset(call.first, call.hidden) + left * 2, call.hidden * 2, call.hidden - left, call.rows,
        true};
    const Operand a = {call.a + top * 2, call.pitch * 2, kTile, call.rows, true};
    Share share;
    multiply(share, x, a, call.rows, panels);
    const float factor = call.share[0];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int row = top + Share::column(j);
        float* const to = call.dw + static_cast<size_t>(row) * static_cast<size_t>(call.hidden) + left;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (row >= call.vocab || left + Share::row(i, 0) >= call.hidden) continue;
            f32x4* const four = reinterpret_cast<f32x4*>(to + Share::row(i, 0));
            const f32x4 before = call.first > 0 ? *four : f32x4{};
            *four = before + share.sums[i][j] * factor;
        }
    }
}

int launch(Call call, void* queue) {
    const auto tiles = [](int length) { return static_cast<unsigned>(ceil_div(length, kTile)); };
    const dim3 threads(kThreads);
    LAUNCH(survey, dim3(tiles(call.tokens), static_cast<unsigned>(call.splits)), threads, 0, queue)(call);
    LAUNCH(finish, dim3(1), dim3(kFinishThreads), 0, queue)(call);
    for (call.first = 0; call.first < call.tokens; call.first += call.chunk) {
        call.rows = call.chunk < call.tokens - call.first ? call.chunk : call.tokens - call.first;
        LAUNCH(weigh, dim3(tiles(call.vocab), tiles(call.rows)), threads, 0, queue)(call);
        LAUNCH(token_gradient, dim3(tiles(call.hidden), tiles(call.rows)), threads, 0, queue)(call);
        LAUNCH(column_gradient, dim3(tiles(call.hidden), tiles(call.vocab)), threads, 0, queue)(call);
    }
    return LAUNCH_STATUS();
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int linear_cross_entropy(
    const void* x, const void* w, const int* target, void* dx, float* dw, float* loss, int tokens, int hidden,
    int vocab, float smoothing, void* workspace, size_t workspace_bytes, void* queue) {
    constexpr int kMost = 1 << 21;  // 128 rows of that many 16-bit elements are addressed with 31 bits
    if (tokens < 1 || vocab < 1 || hidden < 64 || hidden % 64 != 0) return kUnsupportedShape;
    if (tokens > kMost || vocab > kMost || hidden > kMost) return kUnsupportedShape;
    if (!aligned(x) || !aligned(w) || !aligned(dx) || !aligned(dw) || !aligned(workspace)) return kUnsupportedShape;
    Call call = {};
    call.x = static_cast<const uint8_t*>(x);
    call.w = static_cast<const uint8_t*>(w);
    call.target = target;
    call.dx = static_cast<uint8_t*>(dx);
    call.dw = dw;
    call.loss = loss;
    call.tokens = tokens;
    call.hidden = hidden;
    call.vocab = vocab;
    call.smoothing = smoothing;
    const int planned = call.plan(kTile, 2 * kComputeUnits, workspace, workspace_bytes);
    return planned == kOk ? launch(call, queue) : planned;
}
