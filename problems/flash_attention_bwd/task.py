# SPDX-License-Identifier: MIT
"""Types of problem flash_attention_bwd."""

from typing import TypeVar

import torch

# (q, k, v, o, dout, lse, causal, softmax_scale): q, o and dout [batch, sq, hq, dim], k and v [batch, sk, hk, dim], all
# bf16 or all fp16, contiguous; lse fp32 [batch, hq, sq].
input_t = TypeVar("input_t", bound=tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool, float])
# (dq, dk, dv): dq [batch, sq, hq, dim], dk and dv [batch, sk, hk, dim], all in the dtype of q.
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor])
