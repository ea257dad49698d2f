// SPDX-License-Identifier: MIT
//!KERNEL summary attention backward in plain loops over tiles of 64 keys, all fp32
//
// The kernel that runs anywhere, and the readable statement of what the GPU kernels compute. Per (batch, key head) the
// keys and values are unpacked to fp32 tiles once; every query row of the group then walks the tiles it may see,
// recomputes its weights from lse, and adds to its own dq and to the head's dk and dv. One thread, no workspace, host
// memory for one head's keys, values and sums. Supports any head_dim up to 256 and any lengths.
#include "kernel.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "online_softmax.h"
#include "status.h"
#include "tile/axpy.h"

namespace {

constexpr int TILE = 64;

/// y[0, padded) += a · x, 64 at a time.
void add_row(float* y, float a, const float* x, int padded) {
    for (int c = 0; c < padded; c += TILE) axpy<TILE>(y + c, a, x + c);
}

}  // namespace

extern "C" int flash_attention_bwd(
    const void* q, const void* k, const void* v, const void* o, const void* dout, const float* lse, void* dq, void* dk,
    void* dv, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int half, int causal,
    float softmax_scale, void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (batch <= 0 || seqlen_q <= 0 || seqlen_k <= 0 || heads_k <= 0 || heads_q % heads_k != 0)
        return kUnsupportedShape;
    if (head_dim <= 0 || head_dim > 256) return kUnsupportedShape;

    const auto load = [half](const void* from, long at) {
        const uint16_t code = static_cast<const uint16_t*>(from)[at];
        return half ? fp16_to_float(code) : bf16_to_float(code);
    };
    const auto store = [half](void* to, long at, float value) {
        static_cast<uint16_t*>(to)[at] = half ? float_to_fp16(value) : float_to_bf16(value);
    };
    const int group = heads_q / heads_k, tiles = ceil_div(seqlen_k, TILE), padded = ceil_div(head_dim, TILE) * TILE;
    const float scale = softmax_scale * kLog2E;
    const size_t tile_step = static_cast<size_t>(head_dim) * TILE, rows = static_cast<size_t>(tiles) * TILE;
    // A tile of keys or values across, [head_dim][64], to multiply a row with; keys along, [row][padded], to add up.
    std::vector<float> keys_across(tiles * tile_step), values_across(tiles * tile_step), keys_along(rows * padded);
    std::vector<float> sum_dk(rows * padded), sum_dv(rows * padded), row_q(padded), row_dout(padded), row_dq(padded);

    for (int b = 0; b < batch; ++b)
        for (int head = 0; head < heads_k; ++head) {
            const auto key_at = [&](int j) {
                return ((static_cast<long>(b) * seqlen_k + j) * heads_k + head) * head_dim;
            };
            for (int j = 0; j < seqlen_k; ++j)
                for (int c = 0; c < head_dim; ++c) {
                    const size_t across = j / TILE * tile_step + static_cast<size_t>(c) * TILE + j % TILE;
                    keys_across[across] = keys_along[static_cast<size_t>(j) * padded + c] = load(k, key_at(j) + c);
                    values_across[across] = load(v, key_at(j) + c);
                }
            sum_dk.assign(sum_dk.size(), 0.0f);
            sum_dv.assign(sum_dv.size(), 0.0f);
            for (int i = 0; i < seqlen_q; ++i)
                for (int h = head * group; h < (head + 1) * group; ++h) {
                    const long at = ((static_cast<long>(b) * seqlen_q + i) * heads_q + h) * head_dim;
                    float delta = 0.0f;
                    for (int c = 0; c < head_dim; ++c) {
                        row_q[c] = load(q, at + c);
                        row_dout[c] = load(dout, at + c);
                        delta += row_dout[c] * load(o, at + c);
                    }
                    row_dq.assign(row_dq.size(), 0.0f);
                    const float shift = lse[(static_cast<long>(b) * heads_q + h) * seqlen_q + i] * kLog2E;
                    int visible = seqlen_k;
                    if (causal && i + 1 + seqlen_k - seqlen_q < visible) visible = i + 1 + seqlen_k - seqlen_q;
                    for (int t = 0; t * TILE < visible; ++t) {
                        float score[TILE] = {}, dp[TILE] = {};
                        for (int c = 0; c < head_dim; ++c) {
                            const size_t column = t * tile_step + static_cast<size_t>(c) * TILE;
                            axpy<TILE>(score, row_q[c], &keys_across[column]);
                            axpy<TILE>(dp, row_dout[c], &values_across[column]);
                        }
                        for (int j = t * TILE; j < visible && j < (t + 1) * TILE; ++j) {
                            const float p = std::exp2(score[j % TILE] * scale - shift);
                            const float ds = p * (dp[j % TILE] - delta);
                            const size_t row = static_cast<size_t>(j) * padded;
                            add_row(row_dq.data(), ds, &keys_along[row], padded);
                            add_row(&sum_dk[row], ds, row_q.data(), padded);
                            add_row(&sum_dv[row], p, row_dout.data(), padded);
                        }
                    }
                    for (int c = 0; c < head_dim; ++c) store(dq, at + c, softmax_scale * row_dq[c]);
                }
            for (int j = 0; j < seqlen_k; ++j)
                for (int c = 0; c < head_dim; ++c) {
                    store(dk, key_at(j) + c, softmax_scale * sum_dk[static_cast<size_t>(j) * padded + c]);
                    store(dv, key_at(j) + c, sum_dv[static_cast<size_t>(j) * padded + c]);
                }
        }
    return kOk;
}
