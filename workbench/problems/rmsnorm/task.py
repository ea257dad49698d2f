# SPDX-License-Identifier: MIT
"""Types of problem rmsnorm."""

from typing import TypeVar

import torch

# (x, weight, eps): x [rows, width] bf16 or fp32, weight [width] of the same type, eps a number.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, float])
# y [rows, width], of x's type.
output_t = TypeVar("output_t", bound=torch.Tensor)
