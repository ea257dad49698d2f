// SPDX-License-Identifier: MIT
//!KERNEL summary a whole MLA layer in plain loops, absorbed form, online softmax 64 tokens at a time, all fp32
//
// The kernel that runs anywhere: it proves the pipeline and is the readable statement of what the GPU kernel computes.
// Absorbed form: a head's key map goes to its query, so that all heads attend to the cached latents themselves; its value
// map comes behind. One thread, one request after the other; no workspace, host memory for one request and a table of all
// positions' cosines and sines. Supports any sizes. Expect a few GFLOP/s.
#include "kernel.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8.h"
#include "status.h"
#include "tile/attend.h"

namespace {

constexpr int HEADS = 128, NOPE = 128, ROPE = 64, QUERY = NOPE + ROPE, VALUE = 128, MAP = NOPE + VALUE;
constexpr int LATENT = 512, WIDTH = LATENT + ROPE;

float through_bf16(double x) { return bf16_to_float(float_to_bf16(static_cast<float>(x))); }

/// out[row] = weight[row] · x, weight bf16 [rows, columns]. Sums in sixteen lanes, as a compiler turns those into vectors.
void multiply(const void* weight, const float* x, float* out, long rows, int columns) {
    const uint16_t* row = static_cast<const uint16_t*>(weight);
    for (long r = 0; r < rows; ++r, row += columns) {
        float lanes[16] = {}, sum = 0.0f;
        int c = 0;
        for (; c + 16 <= columns; c += 16)
            for (int i = 0; i < 16; ++i) lanes[i] += bf16_to_float(row[c + i]) * x[c + i];
        for (; c < columns; ++c) sum += bf16_to_float(row[c]) * x[c];
        for (const float lane : lanes) sum += lane;
        out[r] = sum;
    }
}

/// 32 cosines and 32 sines of every position up to `length`. All that leads to them is rounded to bf16, and so are they.
std::vector<float> rotations(int length) {
    std::vector<float> table((length + 1L) * ROPE);
    for (long t = 0; t <= length; ++t)
        for (int i = 0; i < ROPE / 2; ++i) {
            const float frequency = through_bf16(std::pow(9984.0, -i / 32.0));  // 10000 in bf16
            const float angle = through_bf16(through_bf16(static_cast<double>(t)) * frequency);
            table[t * ROPE + i] = through_bf16(std::cos(static_cast<double>(angle)));
            table[t * ROPE + ROPE / 2 + i] = through_bf16(std::sin(static_cast<double>(angle)));
        }
    return table;
}

/// Turn 64 values to the position of `turn`, a row of the table.
void rotate(float* x, const float* turn) {
    for (int i = 0; i < ROPE / 2; ++i) {
        const float a = x[i], b = x[i + ROPE / 2], cosine = turn[i], sine = turn[i + ROPE / 2];
        x[i] = a * cosine - b * sine;
        x[i + ROPE / 2] = b * cosine + a * sine;
    }
}

/// Up to 64 tokens from `first` on as keys [576][64], rotated, and values [64][512]; zeros beyond `live` of them.
void unpack(const uint16_t* cache, int first, int live, const float* turns, float* keys, float* values) {
    float token[WIDTH] = {};
    for (int t = 0; t < KEY_TILE; ++t) {
        for (int c = 0; c < WIDTH; ++c)
            token[c] = t < live ? bf16_to_float(cache[(first + t) * long{WIDTH} + c]) : 0.0f;
        if (t < live) rotate(token + LATENT, turns + (first + t) * long{ROPE});
        for (int c = 0; c < WIDTH; ++c) keys[c * KEY_TILE + t] = token[c];
        for (int c = 0; c < LATENT; ++c) values[t * LATENT + c] = token[c];
    }
}

void to_floats(const uint16_t* from, float* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = bf16_to_float(from[i]);
}

void to_bf16(const float* from, uint16_t* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = float_to_bf16(from[i]);
}

}  // namespace

extern "C" int amd_mla_decode(
    const void* x, const void* q_down, const void* q_up, const void* kv_down, const void* kv_up, const void* wo,
    void* kv_cache, void* y, void* kv_row, int batch, int dim, int q_rank, int length, int max_len, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (batch <= 0 || dim <= 0 || q_rank <= 0 || length < 0 || length >= max_len) return kUnsupportedShape;

    const float scale = kLog2E / std::sqrt(static_cast<float>(QUERY));
    const std::vector<float> turns = rotations(length);
    const uint16_t* maps = static_cast<const uint16_t*>(kv_up);
    std::vector<float> input(dim), latent_query(q_rank), q(HEADS * QUERY), row(WIDTH), queries(HEADS * WIDTH);
    std::vector<float> keys(WIDTH * KEY_TILE), values(KEY_TILE * LATENT), acc(HEADS * LATENT), heads(HEADS * VALUE);
    std::vector<float> result(dim), map(LATENT);

    for (long b = 0; b < batch; ++b) {
        to_floats(static_cast<const uint16_t*>(x) + b * dim, input.data(), dim);
        uint16_t* const cache = static_cast<uint16_t*>(kv_cache) + b * max_len * WIDTH;
        multiply(kv_down, input.data(), row.data(), WIDTH, dim);
        to_bf16(row.data(), static_cast<uint16_t*>(kv_row) + b * WIDTH, WIDTH);
        to_bf16(row.data(), cache + long{length} * WIDTH, WIDTH);

        multiply(q_down, input.data(), latent_query.data(), q_rank, dim);
        multiply(q_up, latent_query.data(), q.data(), HEADS * QUERY, q_rank);
        queries.assign(queries.size(), 0.0f);
        for (int h = 0; h < HEADS; ++h) {
            float* const query = &queries[h * WIDTH];
            for (int k = 0; k < NOPE; ++k) {
                to_floats(maps + (h * long{MAP} + k) * LATENT, map.data(), LATENT);
                axpy<LATENT>(query, q[h * QUERY + k], map.data());
            }
            for (int c = 0; c < ROPE; ++c) query[LATENT + c] = q[h * QUERY + NOPE + c];
            rotate(query + LATENT, &turns[length * long{ROPE}]);
        }

        std::vector<SoftmaxRow> states(HEADS);
        acc.assign(acc.size(), 0.0f);
        for (int first = 0; first <= length; first += KEY_TILE) {
            const int live = length + 1 - first < KEY_TILE ? length + 1 - first : KEY_TILE;
            unpack(cache, first, live, turns.data(), keys.data(), values.data());
            for (int h = 0; h < HEADS; ++h) {
                attend(
                    &queries[h * WIDTH], WIDTH, keys.data(), values.data(), LATENT, live, scale, states[h],
                    &acc[h * LATENT]);
            }
        }
        for (int h = 0; h < HEADS; ++h) {
            float* const latent = &acc[h * LATENT];
            for (int c = 0; c < LATENT; ++c) latent[c] *= states[h].inverse();
            multiply(maps + (h * long{MAP} + NOPE) * LATENT, latent, &heads[h * VALUE], VALUE, LATENT);
        }
        multiply(wo, heads.data(), result.data(), dim, HEADS * VALUE);
        to_bf16(result.data(), static_cast<uint16_t*>(y) + b * dim, dim);
    }
    return kOk;
}
