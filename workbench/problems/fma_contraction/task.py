# SPDX-License-Identifier: MIT
"""Types of problem fma_contraction."""

from typing import TypeVar

import torch

# (x, y, coefficients, contract): x and y [rows, n] fp32, coefficients [8] fp32, contract "fused" or "unfused".
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, str])
# (dots, values, residuals), each [rows] fp32.
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor])
