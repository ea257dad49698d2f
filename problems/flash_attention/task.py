# SPDX-License-Identifier: MIT
"""Types of problem flash_attention."""

from typing import TypeVar

import torch

# (q, k, v, causal, softmax_scale): q [batch, sq, hq, dim], k and v [batch, sk, hk, dim], all bf16 or all fp16,
# contiguous.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool, float])
# (o, lse): o [batch, sq, hq, dim] in the dtype of q; lse fp32 [batch, hq, sq].
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
