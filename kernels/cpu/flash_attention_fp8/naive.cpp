// SPDX-License-Identifier: MIT
//!KERNEL summary attention forward from scaled e4m3 in plain loops, online softmax over tiles of 64 keys, all fp32
//
// The kernel that runs anywhere: it proves the pipeline and is the readable statement of what the GPU kernels compute.
// Per (batch, key head) the keys and values are dequantised to fp32 tiles once; every query row of the group then walks
// the tiles it may see. Weights are not rounded. One thread, no workspace, host memory for one head's keys and values.
// Supports any head_dim up to 256 and any lengths. Expect a few GFLOP/s.
#include "kernel.h"

#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "status.h"
#include "tile/attend.h"

namespace {

constexpr int SCALE_BLOCK = 128;  // tokens that share a scale, where blocks do

/// An operand [batch, tokens, heads, dim] and its scales, shared as kernel.h's `scales` says.
struct ScaledTokens {
    const uint8_t* codes;
    const float* scale;
    int tokens, heads, dim, shared;

    long row(int b, int token, int head) const {
        return ((static_cast<long>(b) * tokens + token) * heads + head) * dim;
    }
    float scale_of(int b, int token, int head) const {
        if (shared == 0) return scale[0];
        if (shared == 1) return scale[static_cast<long>(b) * heads + head];
        return scale[(static_cast<long>(b) * ceil_div(tokens, SCALE_BLOCK) + token / SCALE_BLOCK) * heads + head];
    }
};

}  // namespace

extern "C" int flash_attention_fp8(
    const void* q, const void* k, const void* v, const float* q_scale, const float* k_scale, const float* v_scale,
    void* o, float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int scales,
    int causal, float softmax_scale, void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (batch <= 0 || seqlen_q <= 0 || seqlen_k <= 0) return kUnsupportedShape;
    if (heads_k <= 0 || heads_q % heads_k != 0) return kUnsupportedShape;
    if (head_dim <= 0 || head_dim > 256 || scales < 0 || scales > 2) return kUnsupportedShape;

    const ScaledTokens queries = {static_cast<const uint8_t*>(q), q_scale, seqlen_q, heads_q, head_dim, scales};
    const ScaledTokens keys_in = {static_cast<const uint8_t*>(k), k_scale, seqlen_k, heads_k, head_dim, scales};
    const ScaledTokens values_in = {static_cast<const uint8_t*>(v), v_scale, seqlen_k, heads_k, head_dim, scales};
    float code_value[256];
    for (int code = 0; code < 256; ++code) code_value[code] = fp8_to_float(static_cast<uint8_t>(code));

    const float scale = softmax_scale * kLog2E;
    const int group = heads_q / heads_k, tiles = ceil_div(seqlen_k, KEY_TILE), dv = ceil_div(head_dim, 64) * 64;
    const size_t key_step = static_cast<size_t>(head_dim) * KEY_TILE, value_step = static_cast<size_t>(KEY_TILE) * dv;
    std::vector<float> keys(tiles * key_step), values(tiles * value_step), row_q(head_dim), acc(dv);

    for (int b = 0; b < batch; ++b)
        for (int head = 0; head < heads_k; ++head) {
            for (int j = 0; j < seqlen_k; ++j) {
                const long at = keys_in.row(b, j, head);
                const float of_key = keys_in.scale_of(b, j, head), of_value = values_in.scale_of(b, j, head);
                float* key = &keys[j / KEY_TILE * key_step + j % KEY_TILE];
                float* value = &values[j / KEY_TILE * value_step + static_cast<size_t>(j % KEY_TILE) * dv];
                for (int c = 0; c < head_dim; ++c) {
                    key[static_cast<size_t>(c) * KEY_TILE] = code_value[keys_in.codes[at + c]] * of_key;
                    value[c] = code_value[values_in.codes[at + c]] * of_value;
                }
            }
            for (int i = 0; i < seqlen_q; ++i)
                for (int h = head * group; h < (head + 1) * group; ++h) {
                    const long at = queries.row(b, i, h);
                    const float of_query = queries.scale_of(b, i, h);
                    for (int c = 0; c < head_dim; ++c) row_q[c] = code_value[queries.codes[at + c]] * of_query;
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
                    for (int c = 0; c < head_dim; ++c)
                        static_cast<uint16_t*>(o)[at + c] = float_to_bf16(acc[c] * row.inverse());
                }
        }
    return kOk;
}
