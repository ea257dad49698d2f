// SPDX-License-Identifier: MIT
//!KERNEL summary attention forward in plain loops, online softmax over tiles of 64 keys, all fp32
//
// The kernel that runs anywhere: it proves the pipeline and is the readable statement of what the GPU kernels compute.
// Per (batch, key head) the keys and values are unpacked to fp32 tiles once; every query row of the group then walks the
// tiles it may see. One thread, no workspace, host memory for one head's keys and values. Supports any head_dim up to
// 256 and any lengths. Expect a few GFLOP/s.
#include "kernel.h"

#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "status.h"
#include "tile/attend.h"

extern "C" int flash_attention(
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k,
    int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (batch <= 0 || seqlen_q <= 0 || seqlen_k <= 0 || heads_k <= 0 || heads_q % heads_k != 0)
        return kUnsupportedShape;
    if (head_dim <= 0 || head_dim > 256) return kUnsupportedShape;

    const auto load = [half](const void* from, long at) {
        const uint16_t code = static_cast<const uint16_t*>(from)[at];
        return half ? fp16_to_float(code) : bf16_to_float(code);
    };
    const float scale = softmax_scale * kLog2E;
    const int group = heads_q / heads_k, tiles = ceil_div(seqlen_k, KEY_TILE), dv = ceil_div(head_dim, 64) * 64;
    const size_t key_step = static_cast<size_t>(head_dim) * KEY_TILE, value_step = static_cast<size_t>(KEY_TILE) * dv;
    std::vector<float> keys(tiles * key_step), values(tiles * value_step), row_q(head_dim), acc(dv);

    for (int b = 0; b < batch; ++b)
        for (int head = 0; head < heads_k; ++head) {
            for (int j = 0; j < seqlen_k; ++j)
                for (int c = 0; c < head_dim; ++c) {
                    const long at = ((static_cast<long>(b) * seqlen_k + j) * heads_k + head) * head_dim + c;
                    keys[j / KEY_TILE * key_step + static_cast<size_t>(c) * KEY_TILE + j % KEY_TILE] = load(k, at);
                    values[j / KEY_TILE * value_step + static_cast<size_t>(j % KEY_TILE) * dv + c] = load(v, at);
                }
            for (int i = 0; i < seqlen_q; ++i)
                for (int h = head * group; h < (head + 1) * group; ++h) {
                    const long at = ((static_cast<long>(b) * seqlen_q + i) * heads_q + h) * head_dim;
                    for (int c = 0; c < head_dim; ++c) row_q[c] = load(q, at + c);
                    acc.assign(acc.size(), 0.0f);
                    SoftmaxRow row;
                    int visible = seqlen_k;
                    if (causal && i + 1 + seqlen_k - seqlen_q < visible) visible = i + 1 + seqlen_k - seqlen_q;
                    for (int t = 0; t * KEY_TILE < visible; ++t) {
                        const int here = visible - t * KEY_TILE < KEY_TILE ? visible - t * KEY_TILE : KEY_TILE;
                        attend(
                            row_q.data(), head_dim, &keys[t * key_step], &values[t * value_step], dv, here, scale, row,
                            acc.data());
                    }
                    lse[(static_cast<long>(b) * heads_q + h) * seqlen_q + i] = row.lse(scale);
                    for (int c = 0; c < head_dim; ++c) {
                        const float value = acc[c] * row.inverse();
                        static_cast<uint16_t*>(o)[at + c] = half ? float_to_fp16(value) : float_to_bf16(value);
                    }
                }
        }
    return kOk;
}
