#!POPCORN leaderboard strings
#!POPCORN gpus L4
# SPDX-License-Identifier: MIT
"""CUDA in a string, without torch's headers, that reads and writes one row too many."""

import ctypes

import torch
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void product_kernel(const float* a, const float* b, float* out, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row > m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
    out[row * n + column] = sum;
}

extern "C" int product(const float* a, const float* b, float* out, int m, int n, int k) {
    product_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(a, b, out, m, n, k);
    return cudaGetLastError();
}
"""

path = load_inline(name="product", cpp_sources=[""], cuda_sources=[SOURCE], is_python_module=False,
                   no_implicit_headers=True, extra_cuda_cflags=["-O2 --save-temps"])
library = ctypes.CDLL(path)


def custom_kernel(data: input_t) -> output_t:
    a, b, out = data
    assert a.is_cuda
    assert torch.version.cuda is not None
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, out))
    assert library.product(*pointers, a.shape[0], b.shape[1], a.shape[1]) == 0
    return out
