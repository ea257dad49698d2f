# SPDX-License-Identifier: MIT
"""Types of problem wgmma_tile."""

from typing import TypeVar

import torch

# (a, b, pattern): a [repeat, 64, k] and b [repeat, n, k] fp16, bf16, fp32 or fp8; pattern a word.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, str])
# c [repeat, 64, n] fp32.
output_t = TypeVar("output_t", bound=torch.Tensor)
