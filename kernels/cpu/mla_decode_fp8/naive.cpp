// SPDX-License-Identifier: MIT
//!KERNEL summary MLA decode over a paged e4m3 cache in plain loops, online softmax page by page, all fp32
//
// The kernel that runs anywhere: it proves the pipeline and is the readable statement of what the GPU kernels compute.
// Per request each live page is dequantised to fp32 once (slots beyond the length are not read) and all heads and
// queries attend to it. One thread, no workspace, host memory for one page and one request's results. Supports any
// number of heads and queries. Expect a few GFLOP/s.
#include "kernel.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "fp8.h"
#include "status.h"
#include "tile/attend.h"

namespace {

constexpr int PAGE = 64, WIDTH = 576, LATENT = 512;
constexpr int SCALE_BLOCK = 128;  // latent columns that share a scale
constexpr int SCALE_BYTES = LATENT / SCALE_BLOCK * 4;
constexpr int TOKEN_BYTES = LATENT + SCALE_BYTES + (WIDTH - LATENT) * 2;
static_assert(PAGE == KEY_TILE, "a page is a tile of keys");
static_assert(TOKEN_BYTES == 656, "the published row");

/// The first `live` tokens of a page as keys [576][64] and values [64][512]; zeros beyond. `code_value`: all 256 codes.
void unpack_page(const uint8_t* page, int live, const float* code_value, float* keys, float* values) {
    for (int t = 0; t < PAGE; ++t) {
        const uint8_t* row = page + t * TOKEN_BYTES;
        float scale[LATENT / SCALE_BLOCK] = {};
        uint16_t rotary[WIDTH - LATENT] = {};
        if (t < live) {
            std::memcpy(scale, row + LATENT, sizeof scale);
            std::memcpy(rotary, row + LATENT + SCALE_BYTES, sizeof rotary);
        }
        for (int c = 0; c < LATENT; ++c) {
            const float value = t < live ? code_value[row[c]] * scale[c / SCALE_BLOCK] : 0.0f;
            keys[c * PAGE + t] = value;
            values[t * LATENT + c] = value;
        }
        for (int c = LATENT; c < WIDTH; ++c) keys[c * PAGE + t] = bf16_to_float(rotary[c - LATENT]);
    }
}

}  // namespace

extern "C" int mla_decode_fp8(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale,
    void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (batch <= 0 || seqlen_q <= 0 || heads_q <= 0) return kUnsupportedShape;
    if (num_blocks <= 0 || max_blocks_per_seq <= 0) return kUnsupportedShape;

    const float scale = softmax_scale * kLog2E;
    const int rows = seqlen_q * heads_q;
    float code_value[256];
    for (int code = 0; code < 256; ++code) code_value[code] = fp8_to_float(static_cast<uint8_t>(code));
    std::vector<float> keys(WIDTH * PAGE), values(PAGE * LATENT);
    std::vector<float> queries(static_cast<size_t>(rows) * WIDTH), acc(static_cast<size_t>(rows) * LATENT);
    std::vector<SoftmaxRow> states(rows);

    for (int b = 0; b < batch; ++b) {
        const uint16_t* request = static_cast<const uint16_t*>(q) + static_cast<long>(b) * rows * WIDTH;
        for (size_t at = 0; at < queries.size(); ++at) queries[at] = bf16_to_float(request[at]);
        acc.assign(acc.size(), 0.0f);
        states.assign(states.size(), SoftmaxRow());

        const int length = seqlens[b];
        for (int first = 0; first < length; first += PAGE) {
            const long page = block_table[static_cast<long>(b) * max_blocks_per_seq + first / PAGE];
            const int live = length - first < PAGE ? length - first : PAGE;
            const uint8_t* tokens = static_cast<const uint8_t*>(kv_cache) + page * PAGE * TOKEN_BYTES;
            unpack_page(tokens, live, code_value, keys.data(), values.data());
            for (int row = 0; row < rows; ++row) {
                const int hidden = causal ? seqlen_q - 1 - row / heads_q : 0;  // tokens this query must not see
                const int visible = live < length - hidden - first ? live : length - hidden - first;
                attend(
                    &queries[static_cast<size_t>(row) * WIDTH], WIDTH, keys.data(), values.data(), LATENT, visible,
                    scale, states[row], &acc[static_cast<size_t>(row) * LATENT]);
            }
        }
        for (int row = 0; row < rows; ++row) {
            const float* result = &acc[static_cast<size_t>(row) * LATENT];
            const int i = row / heads_q, h = row % heads_q;
            lse[(static_cast<long>(b) * heads_q + h) * seqlen_q + i] = states[row].lse(scale);
            uint16_t* out = static_cast<uint16_t*>(o) + (static_cast<long>(b) * rows + row) * LATENT;
            for (int c = 0; c < LATENT; ++c) out[c] = float_to_bf16(result[c] * states[row].inverse());
        }
    }
    return kOk;
}
