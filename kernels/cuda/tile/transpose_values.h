// SPDX-License-Identifier: MIT
// Attention's values in e4m3 turned over in global memory, so that the keys of a column are contiguous, in the order that P has in
// registers (tile/wgmma_flash_fp8_transpose.h): 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15 of each 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "ptx/grid_dependency.h"
#include "tile/launch_cluster.h"
#include "tile/transpose_bytes.h"

/// [batch, tokens, heads, head_dim] to [batch, heads, head_dim, row()]; rows end with zeros. 16-byte aligned, head_dim a multiple
/// of 64.
struct ValueTransposition {
    const uint8_t* source;
    uint8_t* target;
    int batch, tokens, heads, head_dim;
    unsigned* cleared;   // a number to be made 0 by the way, or null

    WARPWAVE_HOST_DEVICE int blocks() const { return ceil_div(tokens, 128); }
    WARPWAVE_HOST_DEVICE int row() const { return blocks() * 128; }
    WARPWAVE_HOST_DEVICE int rows() const { return batch * heads * head_dim; }
    size_t bytes() const { return static_cast<size_t>(rows()) * row(); }
};

constexpr int kValueTransposeThreads = 128;

/// A warp turns over 128 tokens of 64 columns, a lane 16 x 16 bytes, as tile/transpose_bytes.h does.
__global__ void __launch_bounds__(kValueTransposeThreads) transpose_values_before(const ValueTransposition t) {
    grid_dependency_wait();
    grid_dependency_release();
    const int lane = static_cast<int>(threadIdx.x) % 32, columns = t.heads * t.head_dim;
    if (blockIdx.x == 0 && threadIdx.x == 0 && t.cleared != nullptr) *t.cleared = 0;
    const int tile = static_cast<int>(blockIdx.x) * (kValueTransposeThreads / 32) + static_cast<int>(threadIdx.x) / 32;
    const int tiles = columns / 64, block = tile / tiles, batch = block / t.blocks();
    if (batch >= t.batch) return;
    const int column = tile % tiles * 64 + lane % 4 * 16, token = block % t.blocks() * 128 + lane / 4 * 16;

    uint32_t words[16][4];   // [token][four columns]
    const uint8_t* const from = t.source + (static_cast<size_t>(batch) * t.tokens + token) * columns + column;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        uint4 four = make_uint4(0, 0, 0, 0);
        if (token + i < t.tokens) four = *reinterpret_cast<const uint4*>(from + static_cast<size_t>(i) * columns);
        words[i][0] = four.x;
        words[i][1] = four.y;
        words[i][2] = four.z;
        words[i][3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) transpose_words(words[i][j], words[i + 1][j], words[i + 8][j], words[i + 9][j]);
    }
    uint8_t* const to = t.target + (static_cast<size_t>(batch) * columns + column) * t.row() + token;
    constexpr int kFrom[4] = {0, 1, 8, 9};   // the token whose registers hold column 0, 1, 2 or 3 of four now
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        const int at = kFrom[j % 4], word = j / 4;
        *reinterpret_cast<uint4*>(to + static_cast<size_t>(j) * t.row()) =
            make_uint4(words[at][word], words[at + 2][word], words[at + 4][word], words[at + 6][word]);
    }
}

/// Returns 0 or the runtime's error.
inline int launch_value_transposition(const ValueTransposition& t, void* queue) {
    const long long tiles = static_cast<long long>(t.batch) * t.blocks() * (t.heads * t.head_dim / 64);
    return launch_cluster(
        transpose_values_before, static_cast<int>(ceil_div<long long>(tiles, kValueTransposeThreads / 32)),
        kValueTransposeThreads, 1, 0, false, queue, t);
}
