// SPDX-License-Identifier: MIT
//!KERNEL summary masked softmax and repeated KV heads in plain loops
//
// The readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include <math.h>
#include <string.h>

#include "fp8.h"
#include "status.h"

extern "C" int masked_softmax(
    const void* scores, const void* bias, const int* lengths, const void* v, void* p, void* repeated, int batch,
    int heads_q, int heads_k, int seqlen_q, int seqlen_k, int dim, int bias_kind, int causal, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (batch <= 0 || heads_k <= 0 || heads_q % heads_k != 0 || seqlen_q <= 0 || seqlen_k <= 0 || dim <= 0)
        return kUnsupportedShape;
    const auto load = [](const void* from, size_t i) { return fp16_to_float(static_cast<const uint16_t*>(from)[i]); };
    const size_t keys = static_cast<size_t>(seqlen_k), queries = static_cast<size_t>(seqlen_q);
    const size_t per_request = static_cast<size_t>(heads_q) * queries;
    uint16_t* out = static_cast<uint16_t*>(p);
    for (size_t row = 0; row < static_cast<size_t>(batch) * per_request; ++row) {
        const int limit = causal ? static_cast<int>(row % queries) + 1 + seqlen_k - seqlen_q : seqlen_k;
        const int length = lengths[row / per_request];
        const int seen = limit < length ? (limit > 0 ? limit : 0) : length;
        const size_t bias_row = bias_kind == 1 ? row % per_request : row;
        const auto score = [&](size_t j) {
            return load(scores, row * keys + j) + (bias_kind ? load(bias, bias_row * keys + j) : 0.0f);
        };
        float largest = -INFINITY, sum = 0.0f;
        for (size_t j = 0; j < static_cast<size_t>(seen); ++j) largest = fmaxf(largest, score(j));
        for (size_t j = 0; j < static_cast<size_t>(seen); ++j) sum += expf(score(j) - largest);
        for (size_t j = 0; j < keys; ++j)
            out[row * keys + j] =
                j < static_cast<size_t>(seen) ? float_to_fp16(expf(score(j) - largest) / sum) : uint16_t{0};
    }
    const size_t size = keys * static_cast<size_t>(dim) * sizeof(uint16_t);
    const int group = heads_q / heads_k;
    for (int head = 0; head < batch * heads_q; ++head) {
        const int source = head / heads_q * heads_k + head % heads_q / group;
        memcpy(
            static_cast<char*>(repeated) + static_cast<size_t>(head) * size,
            static_cast<const char*>(v) + static_cast<size_t>(source) * size, size);
    }
    return kOk;
}
