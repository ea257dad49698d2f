#!POPCORN leaderboard strings
#!POPCORN gpus H100 L4
# SPDX-License-Identifier: MIT
"""CUDA in a string, without torch's headers, compiled when it is first called."""

import ctypes

from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cuda_runtime.h>

__global__ void product_kernel(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float column[256];
    int row = blockIdx.y, at = blockIdx.x * 256 + threadIdx.x;
    for (int i = 0; i < k && at < n; i++) {
        column[threadIdx.x] = b[i * n + at];
        out[row * n + at] += a[row * k + i] * column[threadIdx.x];
    }
}

extern "C" int product(const float* a, const float* b, float* out, int m, int n, int k) {
    product_kernel<<<dim3((n + 255) / 256, m), 256>>>(a, b, out, m, n, k);
    return cudaGetLastError();
}
"""


def built():
    return load_inline(name="product", cpp_sources="", cuda_sources=SOURCE, is_python_module=False,
                       no_implicit_headers=True, extra_cuda_cflags=["-O3"])


def custom_kernel(data: input_t) -> output_t:
    library = ctypes.CDLL(built())
    a, b, out = data
    library.product(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in data), a.shape[0], b.shape[1], a.shape[1])
    return out
