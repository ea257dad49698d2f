# SPDX-License-Identifier: MIT
"""A submission by load_inline, which reads it as plain text when it is imported."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void scale_kernel(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""


def custom_kernel(data):
    module = load_inline("scale", cpp_sources=[""], cuda_sources=[SOURCE], functions=["scale"])
    return module.scale(data, 2.0)
