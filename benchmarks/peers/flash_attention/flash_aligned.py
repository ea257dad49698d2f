# SPDX-License-Identifier: MIT
# outputs: o lse
"""The FlashAttention-2 kernels of torch by their own entry point, whose causal mask is aligned as ours is."""

import torch


def custom_kernel(data):
    q, k, v, causal, scale = data
    o, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False, scale=scale)
    return o, lse
