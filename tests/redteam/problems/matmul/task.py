# SPDX-License-Identifier: MIT
"""Types of the problem matmul."""

from typing import TypeVar

import torch

# (a, b, s, c): a fp32 [m, k], b fp32 [n, k], s fp32 [m], c fp32 [m, n], the buffer to write.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor])
output_t = TypeVar("output_t", bound=torch.Tensor)
