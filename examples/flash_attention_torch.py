# SPDX-License-Identifier: MIT
"""A submission in plain torch: shows the form of a `custom_kernel(data)` file. It is slow on purpose."""

import torch


def custom_kernel(data):
    q, k, v, causal, scale = data
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2).float() for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k) * scale
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
        scores = scores.masked_fill(~seen, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.nan_to_num(torch.exp(scores - lse[..., None]))      # a row without keys has -inf - -inf
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).to(q.dtype), lse
