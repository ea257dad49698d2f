# SPDX-License-Identifier: MIT
"""Types of the example problem."""

from typing import TypeVar

import torch

# (x, weight, eps): x bf16 [rows, width], weight bf16 [width].
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, float])
# bf16 [rows, width].
output_t = TypeVar("output_t", bound=torch.Tensor)
