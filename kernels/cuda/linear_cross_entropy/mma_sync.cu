// SPDX-License-Identifier: MIT
// The last layer's loss and its gradients on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary loss, dx and dw on mma.sync.m16n8k16 in chunks of tokens, logits made twice and never stored
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  linear_cross_entropy/product.h (multiply)
//   main loop      linear_cross_entropy/product.h (multiply)
//   epilogue       take_logits, weigh, token_gradient and column_gradient below
//
// Algorithm. `survey`: a block makes the logits of 128 tokens and a part of the vocabulary, tile by tile, and keeps each row's
// maximum, sum of exponentials, sum and target logit. `finish`, one block, merges the parts, in order, to a log-sum-exp per
// token, the loss and 1 / n. Then, for as many tokens at a time as the workspace has room for: `weigh` makes their logits
// again and writes a = p - y as bf16, `token_gradient` multiplies it with w to dx, `column_gradient` its transpose with x,
// added to dw. Every sum has one owner and one order: results do not depend on timing.
//
// Cost. 8 · tokens · hidden · vocab FLOP where 6 are counted: logits in 16 bits would make p wrong by several per cent, and
// in fp32 they would halve the tokens of a chunk. dw is read and written once per chunk.
//
// Tiles 128 x 128 x 64, 256 threads, two stages, 64 KB of shared memory: one block per multiprocessor on Ada, three on Hopper.
// Shapes: all of kernel.h with 16-byte aligned tensors.
// Limits: no TMA and no wgmma on Hopper; dx of few tokens leaves multiprocessors idle; not timed yet on any GPU.
#include "kernel.h"

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "common/device.h"
#include "common/quad.h"
#include "launch.h"
#include "linear_cross_entropy/product.h"
#include "ptx/math.h"

namespace {

using namespace loss;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr int kFinishThreads = 1024;

struct Call {
    const uint8_t *x, *w;
    const int* target;
    uint8_t* dx;
    float *dw, *loss;
    int tokens, hidden, vocab;
    float smoothing;
    // In the workspace:
    float* lse;    // [tokens], base 2
    float* hit;    // [tokens]: the target's logit; not written where ignored
    float* share;  // [1]: 1 / n, or 0
    float* parts;  // [splits][3][tokens]: maximum and sum of exponentials, base 2, and sum of logits
    uint8_t* a;    // [rows of a chunk][pitch] bf16, in the place of parts
    int splits;
    int tiles_per_split;
    int pitch;        // elements of a row of a, a multiple of kTile; zeros from vocab on
    int first, rows;  // of the chunk

    __device__ Operand tokens_by_hidden(int from) const {
        return {
            x + static_cast<size_t>(from) * hidden * 2, static_cast<size_t>(hidden) * 2, min(kTile, tokens - from),
            hidden};
    }
    __device__ Operand columns_by_hidden(int tile) const {
        const int from = tile * kTile;
        return {
            w + static_cast<size_t>(from) * hidden * 2, static_cast<size_t>(hidden) * 2, min(kTile, vocab - from),
            hidden};
    }
};

/// What a row's logits have been so far, base 2.
struct Row {
    float maximum = -INFINITY, sum = 0.0f, all = 0.0f;

    __device__ __forceinline__ void raise(float other) {
        const float before = maximum;
        maximum = fmaxf(before, other);
        sum *= Exp2()(before - shift());
    }
    /// 0 in the place of -inf, since -inf - -inf is NaN.
    __device__ __forceinline__ float shift() const { return maximum == -INFINITY ? 0.0f : maximum; }

    __device__ __forceinline__ void merge(float other_maximum, float other_sum, float other_all) {
        raise(other_maximum);
        sum += other_sum * Exp2()(other_maximum - shift());
        all += other_all;
    }
};

/// The thread's logits of a tile into its four rows. `left`: columns of the vocabulary from the tile's first one on.
__device__ __forceinline__ void take_logits(
    const Share& share, Row (&rows)[2][2], int left, const int (&target)[2][2], float* const (&hit)[2][2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Row& row = rows[i][half];
            float largest = -INFINITY;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int column = Share::column(j, e);
                    const float z = share.sums[i][j][2 * half + e];
                    if (column >= left) continue;
                    largest = fmaxf(largest, z * kLog2E);
                    row.all += z;
                    if (column == target[i][half]) *hit[i][half] = z;
                }
            }
            row.raise(largest);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float z = Share::column(j, e) < left ? share.sums[i][j][2 * half + e] * kLog2E : -INFINITY;
                    row.sum += Exp2()(z - row.shift());
                }
            }
        }
    }
}

/// Parts of 128 tokens and `tiles_per_split` tiles of the vocabulary.
__global__ void __launch_bounds__(kThreads) survey(const __grid_constant__ Call call) {
    const uint32_t shared = shared_address(dynamic_shared());
    const int first = static_cast<int>(blockIdx.x) * kTile, split = static_cast<int>(blockIdx.y);
    const Operand x = call.tokens_by_hidden(first);
    Row rows[2][2];
    int token[2][2], target[2][2];
    float* hit[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            token[i][half] = first + Share::row(i, 2 * half);
            const bool exists = token[i][half] < call.tokens;
            target[i][half] = exists ? call.target[token[i][half]] : -1;
            hit[i][half] = call.hit + (exists ? token[i][half] : 0);
        }
    }
    const int end = min(ceil_div(call.vocab, kTile), (split + 1) * call.tiles_per_split);
    for (int tile = split * call.tiles_per_split; tile < end; ++tile) {
        Share share;
        multiply<false, false>(share, x, call.columns_by_hidden(tile), call.hidden, shared);
        int here[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                here[i][half] = target[i][half] < 0 ? -1 : target[i][half] - tile * kTile;
        }
        take_logits(share, rows, call.vocab - tile * kTile, here, hit);
    }

    // Four lanes and two warps share a row.
    float* const numbers = reinterpret_cast<float*>(dynamic_shared());  // [kTile][3], of the second warp
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    for (int turn = 0; turn < 2; ++turn) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                Row& row = rows[i][half];
                float* const slot = numbers + 3 * Share::row(i, 2 * half);
                if (turn == 0) {
#pragma unroll
                    for (int mask = 1; mask < 4; mask *= 2) {
                        const float maximum = __shfl_xor_sync(0xffffffffu, row.maximum, mask);
                        const float sum = __shfl_xor_sync(0xffffffffu, row.sum, mask);
                        const float all = __shfl_xor_sync(0xffffffffu, row.all, mask);
                        row.merge(maximum, sum, all);
                    }
                    if (warp % 2 == 1 && lane % 4 == 0) slot[0] = row.maximum, slot[1] = row.sum, slot[2] = row.all;
                } else if (warp % 2 == 0 && lane % 4 == 0 && token[i][half] < call.tokens) {
                    row.merge(slot[0], slot[1], slot[2]);
                    float* const part = call.parts + static_cast<size_t>(split) * 3 * call.tokens + token[i][half];
                    part[0] = row.maximum;
                    part[call.tokens] = row.sum;
                    part[2 * static_cast<size_t>(call.tokens)] = row.all;
                }
            }
        }
        __syncthreads();
    }
}

/// lse of every token, the loss, and 1 / n. One block.
__global__ void __launch_bounds__(kFinishThreads) finish(const __grid_constant__ Call call) {
    __shared__ float losses[kFinishThreads], counts[kFinishThreads];
    const int thread = static_cast<int>(threadIdx.x);
    float loss = 0.0f, count = 0.0f;
    for (int token = thread; token < call.tokens; token += kFinishThreads) {
        Row row;
        for (int split = 0; split < call.splits; ++split) {
            const float* const part = call.parts + static_cast<size_t>(split) * 3 * call.tokens + token;
            row.merge(part[0], part[call.tokens], part[2 * static_cast<size_t>(call.tokens)]);
        }
        const float lse = row.maximum + log2f(row.sum);
        call.lse[token] = lse;
        if (call.target[token] < 0) continue;
        count += 1.0f;
        loss += lse * kLn2 - (1.0f - call.smoothing) * call.hit[token] -
                call.smoothing * (row.all / static_cast<float>(call.vocab));
    }
    losses[thread] = loss;
    counts[thread] = count;
    for (int width = kFinishThreads / 2; width > 0; width /= 2) {
        __syncthreads();
        if (thread < width) {
            losses[thread] += losses[thread + width];
            counts[thread] += counts[thread + width];
        }
    }
    if (thread == 0) {
        const float share = counts[0] > 0.0f ? 1.0f / counts[0] : 0.0f;
        call.share[0] = share;
        call.loss[0] = losses[0] * share;
    }
}

/// a = p - y of the chunk's tokens, 0 where ignored and beyond the vocabulary.
__global__ void __launch_bounds__(kThreads) weigh(const __grid_constant__ Call call) {
    const uint32_t shared = shared_address(dynamic_shared());
    const int tile = static_cast<int>(blockIdx.x), top = static_cast<int>(blockIdx.y) * kTile;
    Share share;
    multiply<false, false>(
        share, call.tokens_by_hidden(call.first + top), call.columns_by_hidden(tile), call.hidden, shared);
    const float even = call.smoothing / static_cast<float>(call.vocab), taken = 1.0f - call.smoothing;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = top + Share::row(i, 2 * half);
            if (row >= call.rows) continue;
            const int target = call.target[call.first + row];
            const float lse = call.lse[call.first + row];
            uint8_t* const to = call.a + static_cast<size_t>(row) * call.pitch * 2;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                float a[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int column = tile * kTile + Share::column(j, e);
                    const float p = Exp2()(share.sums[i][j][2 * half + e] * kLog2E - lse);
                    a[e] = target < 0 || column >= call.vocab ? 0.0f : p - even - (column == target ? taken : 0.0f);
                }
                *reinterpret_cast<uint32_t*>(to + (tile * kTile + Share::column(j, 0)) * 2) = Bf16::pack(a[0], a[1]);
            }
        }
    }
}

/// dx of 128 tokens of the chunk and 128 columns: a w / n.
__global__ void __launch_bounds__(kThreads) token_gradient(const __grid_constant__ Call call) {
    const uint32_t shared = shared_address(dynamic_shared());
    const int left = static_cast<int>(blockIdx.x) * kTile, top = static_cast<int>(blockIdx.y) * kTile;
    const Operand a = {
        call.a + static_cast<size_t>(top) * call.pitch * 2, static_cast<size_t>(call.pitch) * 2, call.rows - top,
        call.pitch};
    const Operand w = {call.w + left * 2, static_cast<size_t>(call.hidden) * 2, call.hidden - left, call.vocab};
    Share share;
    multiply<false, true>(share, a, w, call.vocab, shared);
    const float factor = call.share[0];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = top + Share::row(i, 2 * half);
            uint8_t* const to = call.dx + static_cast<size_t>(call.first + row) * call.hidden * 2;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int column = left + Share::column(j, 0);
                if (row < call.rows && column < call.hidden)
                    *reinterpret_cast<uint32_t*>(to + column * 2) =
                        Bf16::pack(share.sums[i][j][2 * half] * factor, share.sums[i][j][2 * half + 1] * factor);
            }
        }
    }
}

/// What the chunk adds to dw of 128 columns of the vocabulary and 128 of hidden: aᵀ x / n.
__global__ void __launch_bounds__(kThreads) column_gradient(const __grid_constant__ Call call) {
    const uint32_t shared = shared_address(dynamic_shared());
    const int left = static_cast<int>(blockIdx.x) * kTile, top = static_cast<int>(blockIdx.y) * kTile;
    const Operand a = {call.a + static_cast<size_t>(top) * 2, static_cast<size_t>(call.pitch) * 2, kTile, call.rows};
    const Operand x = {
        call.x + (static_cast<size_t>(call.first) * call.hidden + left) * 2, static_cast<size_t>(call.hidden) * 2,
        call.hidden - left, call.rows};
    Share share;
    multiply<true, true>(share, a, x, call.rows, shared);
    const float factor = call.share[0];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = top + Share::row(i, 2 * half);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int column = left + Share::column(j, 0);
                if (row >= call.vocab || column >= call.hidden) continue;
                float2* const to = reinterpret_cast<float2*>(call.dw + static_cast<size_t>(row) * call.hidden + column);
                const float2 before = call.first > 0 ? *to : make_float2(0.0f, 0.0f);
                *to = make_float2(
                    before.x + share.sums[i][j][2 * half] * factor, before.y + share.sums[i][j][2 * half + 1] * factor);
            }
        }
    }
}

/// The tokens of a chunk: all, or whole tiles, as far as `bytes` go.
int chunk_of(int tokens, size_t bytes, size_t row_bytes) {
    const size_t room = bytes / row_bytes;
    if (room >= static_cast<size_t>(tokens)) return tokens;
    const int rows = static_cast<int>(room);
    return rows >= kTile ? rows / kTile * kTile : rows >= kStep ? kStep : rows;
}

int launch(Call call, int chunk, void* queue) {
    cudaError_t status = cudaSuccess;
    for (const auto kernel : {survey, weigh, token_gradient, column_gradient}) {
        const cudaError_t set = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
        if (set != cudaSuccess) status = set;
    }
    if (status != cudaSuccess) return status;
    const auto tiles = [](int length) { return static_cast<unsigned>(ceil_div(length, kTile)); };
    const dim3 threads(kThreads), parts(tiles(call.tokens), static_cast<unsigned>(call.splits));
    LAUNCH(survey, parts, threads, kSharedBytes, queue)(call);
    LAUNCH(finish, dim3(1), dim3(kFinishThreads), 0, queue)(call);
    for (call.first = 0; call.first < call.tokens; call.first += chunk) {
        call.rows = chunk < call.tokens - call.first ? chunk : call.tokens - call.first;
        LAUNCH(weigh, dim3(tiles(call.vocab), tiles(call.rows)), threads, kSharedBytes, queue)(call);
        LAUNCH(token_gradient, dim3(tiles(call.hidden), tiles(call.rows)), threads, kSharedBytes, queue)(call);
        LAUNCH(column_gradient, dim3(tiles(call.hidden), tiles(call.vocab)), threads, kSharedBytes, queue)(call);
    }
    return LAUNCH_STATUS();
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int linear_cross_entropy(
    const void* x, const void* w, const int* target, void* dx, float* dw, float* loss, int tokens, int hidden,
    int vocab, float smoothing, void* workspace, size_t workspace_bytes, void* queue) {
    if (tokens < 1 || vocab < 1 || hidden < 64 || hidden % 64 != 0) return kUnsupportedShape;
    if (!aligned(x) || !aligned(w) || !aligned(dx) || !aligned(dw) || !aligned(workspace)) return kUnsupportedShape;
    const int vocab_tiles = ceil_div(vocab, kTile), token_tiles = ceil_div(tokens, kTile);
    if (vocab_tiles > 65535 || token_tiles > 65535) return kUnsupportedShape;
    const size_t numbers = ceil_div(static_cast<size_t>(2 * tokens + 1) * sizeof(float), size_t{256}) * 256;
    if (workspace_bytes < numbers) return kWorkspaceTooSmall;
    const size_t room = workspace_bytes - numbers, part = 3 * sizeof(float) * static_cast<size_t>(tokens);
    const int pitch = vocab_tiles * kTile, chunk = chunk_of(tokens, room, static_cast<size_t>(pitch) * 2);
    if (chunk < 1 || room < part) return kWorkspaceTooSmall;
    int error = 0;
    const int processors = multiprocessors(error);
    if (error != 0) return error;

    // Two rounds of blocks for the survey, where the vocabulary and the workspace have that many parts.
    const size_t most = room / part;
    int splits = ceil_div(2 * processors, token_tiles);
    if (splits > vocab_tiles) splits = vocab_tiles;
    if (static_cast<size_t>(splits) > most) splits = static_cast<int>(most);
    const int per_split = ceil_div(vocab_tiles, splits);
    float* const floats = static_cast<float*>(workspace);
    uint8_t* const area = static_cast<uint8_t*>(workspace) + numbers;
    const Call call = {
        static_cast<const uint8_t*>(x),
        static_cast<const uint8_t*>(w),
        target,
        static_cast<uint8_t*>(dx),
        dw,
        loss,
        tokens,
        hidden,
        vocab,
        smoothing,
        floats,
        floats + tokens,
        floats + 2 * static_cast<size_t>(tokens),
        reinterpret_cast<float*>(area),
        area,
        ceil_div(vocab_tiles, per_split),
        per_split,
        pitch,
        0,
        0};
    return launch(call, chunk, queue);
}
