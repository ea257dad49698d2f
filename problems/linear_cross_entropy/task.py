# SPDX-License-Identifier: MIT
"""Types of problem linear_cross_entropy."""

from typing import TypeVar

import torch

# (x, w, target, smoothing): x bf16 [tokens, hidden], w bf16 [vocab, hidden], target int32 [tokens], -100 = ignored.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, float])
# (dx, dw, loss): dx bf16 [tokens, hidden], dw fp32 [vocab, hidden], loss fp32 [1].
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor])
