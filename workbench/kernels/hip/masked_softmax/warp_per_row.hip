// SPDX-License-Identifier: MIT
//!KERNEL summary masked softmax, a warp per row in registers; KV heads repeated
//!KERNEL arch gfx942
//
// A row of up to 2048 keys (4096 on AMD) is read once. The copies are a second launch.
#include "masked_softmax.h"

extern "C" int masked_softmax(
    const void* scores, const void* bias, const int* lengths, const void* v, void* p, void* repeated, int batch,
    int heads_q, int heads_k, int seqlen_q, int seqlen_k, int dim, int bias_kind, int causal, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* queue) {
    const auto halves = [](const void* from) { return static_cast<const uint16_t*>(from); };
    const Scores problem = {
        halves(scores),
        halves(bias),
        halves(v),
        lengths,
        static_cast<uint16_t*>(p),
        static_cast<uint16_t*>(repeated),
        batch,
        heads_q,
        heads_k,
        seqlen_q,
        seqlen_k,
        dim,
        bias_kind,
        causal};
    return launch_masked_softmax(problem, queue);
}
