# SPDX-License-Identifier: MIT
# outputs: o lse
"""The FlashAttention-2 kernels for packed sequences, as torch ships them; their causal mask is aligned as ours is."""

import torch


def custom_kernel(data):
    q, k, v, starts_q, starts_k, longest_q, longest_k, causal, scale = data
    o, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, starts_q, starts_k, longest_q, longest_k, 0.0, causal, False, scale=scale)
    return o, lse
