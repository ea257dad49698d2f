# SPDX-License-Identifier: MIT
"""Types of problem sgemm."""

from typing import TypeVar

import torch

# (a, b, c, alpha, beta): a [m, k], b [k, n], c [m, n] fp32; alpha and beta numbers.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, float, float])
# out [m, n] fp32.
output_t = TypeVar("output_t", bound=torch.Tensor)
