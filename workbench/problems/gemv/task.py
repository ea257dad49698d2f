# SPDX-License-Identifier: MIT
"""Types of problem gemv."""

from typing import TypeVar

import torch

# (a, x): a [m, n] fp32, x [n] fp32.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor])
# y [m] fp32.
output_t = TypeVar("output_t", bound=torch.Tensor)
