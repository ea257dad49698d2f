# SPDX-License-Identifier: MIT
"""Types of problem gelu."""

from typing import TypeVar

import torch

# (x, form): x [n] fp16, form "erf" or "tanh".
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, str])
# y [n] fp16.
output_t = TypeVar("output_t", bound=torch.Tensor)
