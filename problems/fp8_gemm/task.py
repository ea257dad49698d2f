# SPDX-License-Identifier: MIT
"""Types of problem fp8_gemm."""

from typing import TypeVar

import torch

# (a, b, a_scale, b_scale, c): a fp8 [m, k], b fp8 [n, k], both row-major; a_scale fp32 [m, k/128], strides (1, m);
# b_scale fp32 [ceil(n/128), k/128], row-major; c bf16 [m, n], the buffer to write, contents undefined.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor])
# c, bf16 [m, n].
output_t = TypeVar("output_t", bound=torch.Tensor)
