// SPDX-License-Identifier: MIT
// The last layer's loss and its gradients on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary loss, dx and dw on mma.sync.m16n8k16 in chunks of tokens, logits made twice and never stored
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  common/bf16_product.h (multiply)
//   main loop      common/bf16_product.h (multiply)
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
#include "common/bf16_product.h"
#include "common/device.h"
#include "last_layer.h"
#include "launch.h"
#include "ptx/math.h"

namespace {

using namespace product;

constexpr int kFinishThreads = 1024;

struct Call : LastLayer {
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

/// The thread's logits of a tile into its four rows. `left`: columns of the vocabulary from the tile's first one on.
__device__ __forceinline__ void take_logits(
    const Share& share, LogitRow (&rows)[2][2], int left, const int (&target)[2][2], float* const (&hit)[2][2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            LogitRow& row = rows[i][half];
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
            row.raise(largest, Exp2());
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
    LogitRow rows[2][2];
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
                LogitRow& row = rows[i][half];
                float* const slot = numbers + 3 * Share::row(i, 2 * half);
                if (turn == 0) {
#pragma unroll
                    for (int mask = 1; mask < 4; mask *= 2) {
                        LogitRow other;
                        other.maximum = __shfl_xor_sync(0xffffffffu, row.maximum, mask);
                        other.sum = __shfl_xor_sync(0xffffffffu, row.sum, mask);
                        other.all = __shfl_xor_sync(0xffffffffu, row.all, mask);
                        row.merge(other, Exp2());
                    }
                    if (warp % 2 == 1 && lane % 4 == 0) slot[0] = row.maximum, slot[1] = row.sum, slot[2] = row.all;
                } else if (warp % 2 == 0 && lane % 4 == 0 && token[i][half] < call.tokens) {
                    LogitRow other;
                    other.maximum = slot[0];
                    other.sum = slot[1];
                    other.all = slot[2];
                    row.merge(other, Exp2());
                    row.store(call, split, token[i][half]);
                }
            }
        }
        __syncthreads();
    }
}

/// lse of every token, the loss, and 1 / n. One block.
__global__ void __launch_bounds__(kFinishThreads) finish(const __grid_constant__ Call call) {
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
__global__ void __launch_bounds__(kThreads) weigh(const __grid_constant__ Call call) {
    const uint32_t shared = shared_address(dynamic_shared());
    const int tile = static_cast<int>(blockIdx.x), top = static_cast<int>(blockIdx.y) * kTile;
    Share share;
    multiply<false, false>(
        share, call.tokens_by_hidden(call.first + top), call.columns_by_hidden(tile), call.hidden, shared);
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
                    a[e] = logit_gradient(
                        call, share.sums[i][j][2 * half + e], lse, tile * kTile + Share::column(j, e), target, Exp2());
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

int launch(Call call, void* queue) {
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
    for (call.first = 0; call.first < call.tokens; call.first += call.chunk) {
        call.rows = call.chunk < call.tokens - call.first ? call.chunk : call.tokens - call.first;
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
    if (vocab > 65535 * kTile || tokens > 65535 * kTile) return kUnsupportedShape;
    int error = 0;
    const int processors = multiprocessors(error);
    if (error != 0) return error;
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
    const int planned = call.plan(kTile, 2 * processors, workspace, workspace_bytes);
    return planned == kOk ? launch(call, queue) : planned;
}
