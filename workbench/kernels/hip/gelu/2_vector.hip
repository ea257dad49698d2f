// SPDX-License-Identifier: MIT
//!KERNEL summary GELU, eight elements a thread
//!KERNEL arch gfx942
//!KERNEL step 2 16-byte loads
//
// The widest load: eight times fewer instructions for the same bytes.
#include "gelu.h"

extern "C" int gelu(
    const void* x, void* y, long long n, int tanh_form, void* /*workspace*/, size_t /*workspace_bytes*/, void* queue) {
    if (!is_aligned(x) || !is_aligned(y))
        return launch_gelu(tanh_form ? gelu_scalar<true> : gelu_scalar<false>, 1, x, y, n, queue);
    return launch_gelu(tanh_form ? gelu_vector<true> : gelu_vector<false>, 8, x, y, n, queue);
}
