# SPDX-License-Identifier: MIT
"""FlashAttention-4's backward (CuTe DSL), where `flash_attn.cute` is installed: on the problem's o and lse."""

from flash_attn.cute.interface import _flash_attn_bwd


def custom_kernel(data):
    q, k, v, o, dout, lse, causal, scale = data
    return tuple(_flash_attn_bwd(q, k, v, o, dout, lse, softmax_scale=scale, causal=bool(causal))[:3])
