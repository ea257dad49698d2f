// SPDX-License-Identifier: MIT
//!KERNEL summary one thread per element, one more kernel for the sum
//!KERNEL arch gfx942
//!KERNEL define THREADS=64
//!KERNEL tune UNROLL=1,2
//
// The tests' kernel: one launch per output.
#include "kernel.h"
#include "launch.h"
#include "reverse.h"

#include <cstdint>

namespace {

constexpr int kUnroll = UNROLL;     // a pragma does not see a macro

__global__ void scale(const float* x, float* y, float a, int n) {
#pragma unroll kUnroll
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        y[i] = a * x[i] + x[reverse_index(i, n)];
}

__global__ void sum(const float* y, float* total, int n) {
    float value = 0;
    for (int i = 0; i < n; ++i) value += y[i];
    *total = value;
}

}  // namespace

extern "C" int axpy(
    const void* x, float* y, float* total, int n, float a, void* workspace, size_t workspace_bytes, void* queue) {
    if (n < 1) return kUnsupportedShape;
    if (workspace == nullptr || workspace_bytes < 4u * n) return kWorkspaceTooSmall;
    LAUNCH(scale, (n + THREADS - 1) / THREADS, THREADS, 0, queue)(static_cast<const float*>(x), y, a, n);
    LAUNCH(sum, 1, 1, 0, queue)(y, total, n);
    return LAUNCH_STATUS();
}
