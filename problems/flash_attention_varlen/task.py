# SPDX-License-Identifier: MIT
"""Types of problem flash_attention_varlen."""

from typing import TypeVar

import torch

# (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale): q [total_q, hq, dim], k and
# v [total_k, hk, dim], all bf16 or all fp16, contiguous; cu_seqlens_q and cu_seqlens_k int32 [batch + 1].
input_t = TypeVar("input_t", bound=tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int, bool, float])
# (o, lse): o [total_q, hq, dim] in the dtype of q; lse fp32 [hq, total_q].
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
