# SPDX-License-Identifier: MIT
"""Types of problem bias_mask_scale_add."""

from typing import TypeVar

import torch

# (x, residual, bias, mask, scale): x and residual [rows, width] fp16, bias [width] fp16, mask [rows, width] uint8,
# scale a number.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float])
# y [rows, width] fp16.
output_t = TypeVar("output_t", bound=torch.Tensor)
