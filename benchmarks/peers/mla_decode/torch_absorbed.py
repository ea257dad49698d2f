# SPDX-License-Identifier: MIT
"""The absorbed form in plain torch: gather the pages, two batched products around a softmax. Nothing is fused."""

import torch


def _product(a, b):
    """a @ b in fp32: scores rounded to bf16 would be too coarse for the exponential."""
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.bmm(a.float(), b.float())


def custom_kernel(data):
    q, kv_cache, block_table, seqlens, causal, scale = data
    batch, seqlen_q, heads, width = q.shape
    blocks, page = block_table.shape[1], kv_cache.shape[1]
    token = torch.arange(blocks * page, device=q.device)
    live = token[None] < seqlens[:, None]                                     # [batch, tokens]
    pages = torch.where(live[:, ::page], block_table, 0).long()               # entries beyond the length are arbitrary
    kv = kv_cache[pages].view(batch, blocks * page, width)
    kv = torch.where(live[..., None], kv, 0)                                  # unused slots hold NaN
    scores = _product(q.flatten(1, 2), kv.transpose(1, 2)).mul_(scale)
    scores = scores.view(batch, seqlen_q, heads, -1)
    limit = seqlens[:, None] - (seqlen_q - 1 - torch.arange(seqlen_q, device=q.device) if causal else 0)
    scores.masked_fill_(token >= limit.view(batch, -1, 1, 1), float("-inf"))
    lse = scores.logsumexp(-1)                                                # [batch, seqlen_q, heads]
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0)[..., None]).to(q.dtype)
    o = torch.matmul(weights.flatten(1, 2), kv[..., :512]).view(batch, seqlen_q, heads, 512)
    return o, lse.transpose(1, 2)
