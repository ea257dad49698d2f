// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, cuBLASLt in column order: C^T = B^T A^T, nothing is copied
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 10 the vendor's library, operands swapped
//!KERNEL expect m=4096,n=4096,k=4096,* 48-60TFLOP/s@H200
//!KERNEL tune LIBRARY_CHOICE=0,1,2,3
//
// The figure that the other steps are measured by. LIBRARY_CHOICE is which of the library's proposals is taken, 0 being the
// best by its own estimate.
#include "kernel.h"
#include "library.h"

namespace {
// A translation unit without device code: the compiler's report, and the judge's table, then have a name to show.
__global__ void none() {}
}  // namespace

extern "C" int sgemm(
    const float* a, const float* b, const float* c, float* out, int m, int n, int k, float alpha, float beta,
    void* workspace, size_t workspace_bytes, void* queue) {
    return sgemm_library::multiply(a, b, c, out, m, n, k, alpha, beta, true, workspace, workspace_bytes, queue);
}
