# SPDX-License-Identifier: MIT
"""torch.compile of what torch_eager.py does."""

import torch


@torch.compile(dynamic=False)
def custom_kernel(data):
    scores, bias, lengths, v, causal = data
    hq, sq, sk = scores.shape[1:]
    keys = torch.arange(sk, device=scores.device)
    seen = (keys < lengths[:, None])[:, None, None, :]
    if causal:
        seen = seen & (keys <= torch.arange(sq, device=scores.device)[:, None] + sk - sq)
    masked = torch.where(seen, scores.float() + (bias.float() if bias.ndim > 1 else 0.0), -torch.inf)
    p = torch.where(seen, torch.softmax(masked, -1), 0.0).half()
    return p, v.repeat_interleave(hq // v.shape[1], 1)
