# SPDX-License-Identifier: MIT
"""Types of the problem foreign."""

from typing import TypeVar

import torch

input_t = TypeVar("input_t", bound=tuple[torch.Tensor, float])      # (x, scale)
output_t = TypeVar("output_t", bound=torch.Tensor)
