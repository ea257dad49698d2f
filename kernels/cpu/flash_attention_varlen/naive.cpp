// SPDX-License-Identifier: MIT
//!KERNEL summary attention forward over packed sequences in plain loops, online softmax over tiles of 64 keys, all fp32
//
// The kernel that runs anywhere. Per sequence and key head the keys and values are unpacked to fp32 tiles once, none beyond
// the sequence; every query row of the group then walks the tiles it may see. One thread, no workspace, host memory for one
// head's keys and values of one sequence. Any head_dim up to 256 and any lengths. Expect a few GFLOP/s.
#include "kernel.h"

#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "status.h"
#include "tile/attend.h"

extern "C" int flash_attention_varlen(
    const void* q, const void* k, const void* v, const int* cu_seqlens_q, const int* cu_seqlens_k, void* o, float* lse,
    int batch, int total_q, int /*total_k*/, int /*max_seqlen_q*/, int /*max_seqlen_k*/, int heads_q, int heads_k,
    int head_dim, int half, int causal, float softmax_scale, void* /*workspace*/, size_t /*workspace_bytes*/,
    void* /*queue*/) {
    if (batch <= 0 || heads_k <= 0 || heads_q <= 0 || heads_q % heads_k != 0) return kUnsupportedShape;
    if (head_dim <= 0 || head_dim > 256) return kUnsupportedShape;

    const auto load = [half](const void* from, long at) {
        const uint16_t code = static_cast<const uint16_t*>(from)[at];
        return half ? fp16_to_float(code) : bf16_to_float(code);
    };
    const float scale = softmax_scale * kLog2E;
    const int group = heads_q / heads_k, dv = ceil_div(head_dim, 64) * 64;
    const size_t key_step = static_cast<size_t>(head_dim) * KEY_TILE, value_step = static_cast<size_t>(KEY_TILE) * dv;
    std::vector<float> row_q(head_dim), acc(dv);

    for (int b = 0; b < batch; ++b) {
        const int queries = cu_seqlens_q[b + 1] - cu_seqlens_q[b], keys = cu_seqlens_k[b + 1] - cu_seqlens_k[b];
        if (queries == 0) continue;
        const int tiles = ceil_div(keys, KEY_TILE);
        std::vector<float> key_tiles(tiles * key_step), value_tiles(tiles * value_step);
        for (int head = 0; head < heads_k; ++head) {
            for (int j = 0; j < keys; ++j)
                for (int c = 0; c < head_dim; ++c) {
                    const long at = (static_cast<long>(cu_seqlens_k[b] + j) * heads_k + head) * head_dim + c;
                    key_tiles[j / KEY_TILE * key_step + static_cast<size_t>(c) * KEY_TILE + j % KEY_TILE] = load(k, at);
                    value_tiles[j / KEY_TILE * value_step + static_cast<size_t>(j % KEY_TILE) * dv + c] = load(v, at);
                }
            for (int i = 0; i < queries; ++i)
                for (int h = head * group; h < (head + 1) * group; ++h) {
                    const long row_of = cu_seqlens_q[b] + i, at = (row_of * heads_q + h) * head_dim;
                    for (int c = 0; c < head_dim; ++c) row_q[c] = load(q, at + c);
                    acc.assign(acc.size(), 0.0f);
                    SoftmaxRow row;
                    const int visible = causal && i + 1 - queries < 0 ? i + 1 + keys - queries : keys;
                    for (int t = 0; t * KEY_TILE < visible; ++t) {
                        const int here = visible - t * KEY_TILE < KEY_TILE ? visible - t * KEY_TILE : KEY_TILE;
                        attend(
                            row_q.data(), head_dim, &key_tiles[t * key_step], &value_tiles[t * value_step], dv, here,
                            scale, row, acc.data());
                    }
                    lse[static_cast<long>(h) * total_q + row_of] = row.lse(scale);
                    for (int c = 0; c < head_dim; ++c) {
                        const float value = acc[c] * row.inverse();
                        static_cast<uint16_t*>(o)[at + c] = half ? float_to_fp16(value) : float_to_bf16(value);
                    }
                }
        }
    }
    return kOk;
}
