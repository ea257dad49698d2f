# SPDX-License-Identifier: MIT
"""cuDNN's attention backward through torch, called by itself: on the o and lse of the problem, no autograd.

torch aligns a causal mask to the top left, ours is aligned to the bottom right: the same thing only for Sq = Sk.
"""

import torch

EMPTY = {}                    # the state of a random generator that dropout would need: read by nobody


def custom_kernel(data):
    q, k, v, o, dout, lse, causal, scale = data
    if causal and q.shape[1] != k.shape[1]:
        raise ValueError("torch's causal mask means something else when Sq differs from Sk")
    if q.shape[2] != k.shape[2]:
        raise ValueError("this call of torch wants as many key heads as query heads")
    state = EMPTY.setdefault(q.device, torch.zeros((), dtype=torch.int64, device=q.device))
    heads_first = (x.transpose(1, 2) for x in (dout, q, k, v, o))
    gradients = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        *heads_first, lse.unsqueeze(-1), state, state, None, None, None, q.shape[1], k.shape[1], 0.0, causal,
        scale=scale)
    return tuple(x.transpose(1, 2).contiguous() for x in gradients)
