// SPDX-License-Identifier: MIT
// One call of attention's backward pass, and what every kernel of it refuses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attention {

/// The arguments of kernel.h but for the queue.
struct BackwardCall {
    const void *q, *k, *v, *o, *dout;
    const float* lse;
    void *dq, *dk, *dv;
    int batch, queries, keys, heads, key_heads, head_dim;
    bool half, causal;
    float softmax_scale;
    void* workspace;
    size_t workspace_bytes;

    /// Whether the sizes make sense and the tensors can be read 16 bytes at a time. Kernels judge the head dimension themselves.
    bool sound() const {
        if (batch < 1 || queries < 1 || keys < 1 || key_heads < 1 || heads < 1 || heads % key_heads != 0) return false;
        for (const void* tensor :
             {q, k, v, o, dout, static_cast<const void*>(dq), static_cast<const void*>(dk),
              static_cast<const void*>(dv)}) {
            if (reinterpret_cast<uintptr_t>(tensor) % 16 != 0) return false;
        }
        return true;
    }
};

}  // namespace attention
