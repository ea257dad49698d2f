// SPDX-License-Identifier: MIT
// A call of MLA decode as every kernel file gets it, and what its device code is told.
#pragma once

#include <cstdint>

#include "online_softmax.h"

struct DecodeCall {
    static constexpr int kPage = 64;  // tokens

    const void* q;           // [batch, seqlen_q, heads, 576] bf16
    const void* cache;       // [num_blocks, 64, bytes of a token]
    const int* block_table;  // [batch, max_blocks]
    const int* seqlens;      // [batch]
    void* o;                 // [batch, seqlen_q, heads, 512] bf16
    float* lse;              // [batch, heads, seqlen_q]
    int batch, seqlen_q, heads, num_blocks, max_blocks;
    int causal;
    float softmax_scale;

    long long rows() const { return static_cast<long long>(seqlen_q) * heads; }  // of a request

    /// Whether there is something to do, with a scale that keeps the order of scores, on tensors of whole 16 bytes, and the line of all
    /// pages, each request counting for `start` more, can be counted up to `most`.
    bool valid(long long start, long long most) const {
        if (batch < 1 || seqlen_q < 1 || heads < 1 || num_blocks < 1 || max_blocks < 1 || !(softmax_scale > 0.0f)) return false;
        return batch * (max_blocks + start) <= most && aligned(q) && aligned(cache) && aligned(o);
    }
    static bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

    /// All of `Arguments` that does not depend on a kernel's tile and on how the batch is cut; the rest is zero.
    template <class Arguments>
    Arguments arguments() const {
        Arguments a{};
        a.q = static_cast<const uint8_t*>(q);
        a.cache = static_cast<const uint8_t*>(cache);
        a.block_table = block_table;
        a.o = static_cast<uint8_t*>(o);
        a.lse = lse;
        a.schedule.seqlens = seqlens;
        a.schedule.batch = batch;
        a.schedule.longest = max_blocks * kPage;
        a.seqlen_q = seqlen_q;
        a.heads = heads;
        a.max_blocks = max_blocks;
        a.causal = causal != 0;
        a.scale = softmax_scale * kLog2E;
        return a;
    }
};
