#!POPCORN leaderboard strings
#!POPCORN gpus H100 L4
# SPDX-License-Identifier: MIT
"""CUDA in a string, with torch's headers: right, for a GPU that is not here."""

from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

HEADER = "torch::Tensor product(torch::Tensor a, torch::Tensor b, torch::Tensor out);"
SOURCE = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void product_kernel(const float* a, const float* b, float* out, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
    out[row * n + column] = sum;
}

torch::Tensor product(torch::Tensor a, torch::Tensor b, torch::Tensor out) {
    TORCH_CHECK(a.is_cuda() && b.device().is_cuda(), "the data are on the GPU");
    const at::cuda::OptionalCUDAGuard guard(device_of(a));
    int m = a.size(0), n = b.size(1), k = a.size(1);
    product_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16), 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), m, n, k);
    C10_CUDA_CHECK(cudaGetLastError());
    return out;
}
"""

module = load_inline(name="product", cpp_sources=[HEADER], cuda_sources=[SOURCE], functions=["product"],
 extra_cuda_cflags=["-O3"])


def custom_kernel(data: input_t) -> output_t:
    a, b, out = data
    assert a.is_cuda
    return module.product(a, b, out)
