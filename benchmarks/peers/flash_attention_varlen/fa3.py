# SPDX-License-Identifier: MIT
# outputs: o
"""FlashAttention-3 for Hopper, where `flash_attn_interface` is installed; its causal mask is aligned as ours is."""

from flash_attn_interface import flash_attn_varlen_func

PADDING = 48  # rows of k and v behind the last sequence, in every case (problems/attention_sequences.py)


def custom_kernel(data):
    q, k, v, starts_q, starts_k, longest_q, longest_k, causal, scale = data
    k, v = k[:-PADDING], v[:-PADDING]  # the library reads whole tiles up to the tensor's end, and here that holds NaN
    o = flash_attn_varlen_func(
        q, k, v, starts_q, starts_k, longest_q, longest_k, softmax_scale=scale, causal=bool(causal))
    return o[0] if isinstance(o, tuple) else o
