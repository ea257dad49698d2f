# SPDX-License-Identifier: MIT
"""Types of problem amd_fp8_mm."""

from typing import TypeVar

import torch

# (a, b, a_scale, b_scale, c): a fp8 [m, k], strides (1, m); b fp8 [n, k], strides (1, n); a_scale fp32 [m, k/128],
# strides (1, m); b_scale fp32 [ceil(n/128), k/128], strides (1, ceil(n/128)); c bf16 [m, n], row-major, the buffer to
# write, contents undefined.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor])
# c, bf16 [m, n].
output_t = TypeVar("output_t", bound=torch.Tensor)
