# SPDX-License-Identifier: MIT
"""Types of problem flash_attention_fp8."""

from typing import TypeVar

import torch

# (q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, scales): q fp8 [batch, sq, hq, dim], k and v fp8
# [batch, sk, hk, dim], contiguous; scales is "tensor", "head" or "block", and q_scale, k_scale, v_scale are fp32
# [1, 1, 1], [batch, 1, heads] or [batch, ceil(tokens / 128), heads], contiguous.
input_t = TypeVar("input_t", bound=tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool, float, str])
# (o, lse): o bf16 [batch, sq, hq, dim]; lse fp32 [batch, hq, sq].
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
