// SPDX-License-Identifier: MIT
//!KERNEL summary GELU, one element a thread
//!KERNEL arch gfx942
//!KERNEL step 1 one element a thread
//
// Loads of two bytes: memory is busy, but each warp asks for 64 bytes at a time.
#include "gelu.h"

extern "C" int gelu(
    const void* x, void* y, long long n, int tanh_form, void* /*workspace*/, size_t /*workspace_bytes*/, void* queue) {
    return launch_gelu(tanh_form ? gelu_scalar<true> : gelu_scalar<false>, 1, x, y, n, queue);
}
