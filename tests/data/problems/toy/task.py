# SPDX-License-Identifier: MIT
"""Types of the problem toy."""

from typing import TypeVar

import torch

# (x, alpha, y): x fp32 [n], alpha a float, y fp32 [n], the buffer to write.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, float, torch.Tensor])
output_t = TypeVar("output_t", bound=torch.Tensor)
