// SPDX-License-Identifier: MIT
// What kernels of linear_cross_entropy share on both vendors: the workspace, a row's softmax, and the merge of its parts.
//
// A survey leaves, for every token and part of the vocabulary, the maximum and the sum of exponentials (base 2) and the sum
// of the logits; one block merges them, in order, to a log-sum-exp per token, the loss and 1 / n. After that the parts' place
// takes a = p - y of a chunk of tokens, in bf16.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "ceil_div.h"
#include "online_softmax.h"
#include "status.h"

struct LastLayer {
    const uint8_t *x, *w;
    const int* target;
    uint8_t* dx;
    float *dw, *loss;
    int tokens, hidden, vocab;
    float smoothing;
    // In the workspace:
    float* lse;           // [tokens], base 2
    float* hit;           // [tokens]: the target's logit; not written where ignored
    float* share;         // [1]: 1 / n, or 0
    float* parts;         // [splits][3][tokens]
    uint8_t* a;           // [rows of a chunk][pitch] bf16, in the place of parts; zeros from column vocab on
    int splits;           // of the vocabulary in the survey
    int tiles_per_split;  // of `tile` columns
    int pitch;            // elements of a row of a: whole tiles
    int chunk;            // tokens
    int first, rows;      // of the chunk of a launch

    /// Fill in the workspace's part for tiles of `tile` x `tile` and `blocks` blocks that a survey should have. Chunks are
    /// whole tiles of tokens, or half of one, where there is room. Returns a KernelStatus.
    int plan(int tile, int blocks, void* workspace, size_t bytes) {
        const size_t count = static_cast<size_t>(tokens);
        const size_t numbers = ceil_div((2 * count + 1) * sizeof(float), size_t{256}) * 256;
        const size_t part = 3 * sizeof(float) * count;
        if (bytes < numbers + part) return kWorkspaceTooSmall;
        const int tiles = ceil_div(vocab, tile);
        pitch = tiles * tile;
        const size_t fitting = (bytes - numbers) / (static_cast<size_t>(pitch) * 2);
        if (fitting < 1) return kWorkspaceTooSmall;
        chunk = fitting < count ? static_cast<int>(fitting) : tokens;
        if (chunk < tokens && chunk >= tile / 2) chunk = chunk >= tile ? chunk / tile * tile : tile / 2;

        const int room = static_cast<int>((bytes - numbers) / part < 4096 ? (bytes - numbers) / part : 4096);
        splits = ceil_div(blocks, ceil_div(tokens, tile));
        if (splits > tiles) splits = tiles;
        if (splits > room) splits = room;
        tiles_per_split = ceil_div(tiles, splits);
        splits = ceil_div(tiles, tiles_per_split);

        lse = static_cast<float*>(workspace);
        hit = lse + count;
        share = hit + count;
        a = static_cast<uint8_t*>(workspace) + numbers;
        parts = reinterpret_cast<float*>(a);
        return kOk;
    }
};

/// What a token's logits have been so far. Each architecture passes its own exp2.
struct LogitRow {
    float maximum = -INFINITY;  // base 2
    float sum = 0.0f;           // of exp2(logit - maximum)
    float all = 0.0f;           // of the logits, natural

    /// 0 in the place of -inf, since -inf - -inf is NaN.
    WARPWAVE_HOST_DEVICE float shift() const { return maximum == -INFINITY ? 0.0f : maximum; }

    template <class Exp2>
    WARPWAVE_HOST_DEVICE void raise(float other, Exp2 exp2) {
        const float before = maximum;
        maximum = fmaxf(before, other);
        sum *= exp2(before - shift());
    }

    template <class Exp2>
    WARPWAVE_HOST_DEVICE void merge(const LogitRow& other, Exp2 exp2) {
        raise(other.maximum, exp2);
        sum += other.sum * exp2(other.maximum - shift());
        all += other.all;
    }

    WARPWAVE_HOST_DEVICE void store(const LastLayer& layer, int split, int token) const {
        float* const part = layer.parts + static_cast<size_t>(split) * 3 * static_cast<size_t>(layer.tokens) + token;
        part[0] = maximum;
        part[layer.tokens] = sum;
        part[2 * static_cast<size_t>(layer.tokens)] = all;
    }

    static WARPWAVE_HOST_DEVICE LogitRow load(const LastLayer& layer, int split, int token) {
        const float* const part =
            layer.parts + static_cast<size_t>(split) * 3 * static_cast<size_t>(layer.tokens) + token;
        LogitRow row;
        row.maximum = part[0];
        row.sum = part[layer.tokens];
        row.all = part[2 * static_cast<size_t>(layer.tokens)];
        return row;
    }
};

struct TokenLoss {
    float loss, count;
};

/// Merge a token's parts, leave its lse, and add its loss to `sum` unless it is ignored.
template <class Exp2>
WARPWAVE_HOST_DEVICE void finish_token(const LastLayer& layer, int token, TokenLoss& sum, Exp2 exp2) {
    LogitRow row;
    for (int split = 0; split < layer.splits; ++split) row.merge(LogitRow::load(layer, split, token), exp2);
    const float lse = row.maximum + log2f(row.sum);
    layer.lse[token] = lse;
    if (layer.target[token] < 0) return;
    sum.count += 1.0f;
    sum.loss += lse * kLn2 - (1.0f - layer.smoothing) * layer.hit[token] -
                layer.smoothing * (row.all / static_cast<float>(layer.vocab));
}

WARPWAVE_HOST_DEVICE inline void finish_loss(const LastLayer& layer, const TokenLoss& sum) {
    const float share = sum.count > 0.0f ? 1.0f / sum.count : 0.0f;
    layer.share[0] = share;
    layer.loss[0] = sum.loss * share;
}

/// p - y at a column of the vocabulary; 0 beyond it, and where the token is ignored.
template <class Exp2>
WARPWAVE_HOST_DEVICE float logit_gradient(
    const LastLayer& layer, float z, float lse, int column, int target, Exp2 exp2) {
    if (target < 0 || column >= layer.vocab) return 0.0f;
    const float even = layer.smoothing / static_cast<float>(layer.vocab);
    return exp2(z * kLog2E - lse) - even - (column == target ? 1.0f - layer.smoothing : 0.0f);
}
