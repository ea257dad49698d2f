# SPDX-License-Identifier: MIT
"""Plain statements of the problems, and models of the roundings that real kernels cannot avoid."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """(o, lse) in fp64 from whole score matrices: q [b, sq, hq, d], k [b, sk, hk, d], v [b, sk, hk, dv]."""
    sq, sk, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    queries = q.double().transpose(1, 2)
    keys, values = (x.double().transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("bhid,bhjd->bhij", queries, keys) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(sq, sk, dtype=torch.bool).triu(sk - sq + 1), -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhij,bhjd->bihd", weights, values), scores.logsumexp(-1)


def online_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, tile: int = 64, weights: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(o, lse) as a fused kernel computes them: fp32 scores and sums, tile by tile, with the weights rounded to the
    data's dtype (or ``weights``) before they meet v, and their sum taken before that rounding.
    """
    b, sq, hq, _ = q.shape
    sk, group, dv = k.shape[1], hq // k.shape[2], v.shape[3]
    queries = q.float().transpose(1, 2)
    top = torch.full((b, hq, sq, 1), -torch.inf)
    total, acc = torch.zeros_like(top), torch.zeros(b, hq, sq, dv)
    for start in range(0, sk, tile):
        keys, values = (x[:, start : start + tile].float().transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("bhid,bhjd->bhij", queries, keys) * scale
        if causal:
            hidden = torch.ones(sq, sk, dtype=torch.bool).triu(sk - sq + 1)[:, start : start + tile]
            scores = scores.masked_fill(hidden, -torch.inf)
        above = torch.maximum(top, scores.amax(-1, keepdim=True))
        shift = torch.where(torch.isinf(above), 0.0, above)
        shrink, p = torch.exp(top - shift), torch.exp(scores - shift)
        rounded = p.to(weights or q.dtype).float()
        acc = acc * shrink + torch.einsum("bhij,bhjd->bhid", rounded, values)
        total = total * shrink + p.sum(-1, keepdim=True)
        top = above
    o = torch.where(total == 0, 0.0, acc / total).transpose(1, 2).to(q.dtype).contiguous()
    return o, (top + total.log()).squeeze(-1)


def tiled_gradients(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, dout: Tensor, lse: Tensor, causal: bool, scale: float, tile: int = 64,
    weights: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) as a fused kernel computes them: fp32 scores and sums, tile of keys by tile, p and ds rounded to the
    data's dtype (or ``weights``) before they meet dout, k and q.
    """
    b, sq, hq, d = q.shape
    sk, hk, half = k.shape[1], k.shape[2], weights or q.dtype
    queries, grown, out = (x.float().transpose(1, 2).reshape(b, hk, -1, d) for x in (q, dout, o))    # (head, row) rows
    delta, shift = (grown * out).sum(-1, keepdim=True), lse.reshape(b, hk, -1, 1)
    row = torch.arange(sq).repeat(hq // hk)[:, None]
    dq, dk, dv = torch.zeros_like(queries), torch.empty(k.shape), torch.empty(v.shape)
    for start in range(0, sk, tile):
        keys, values = (x[:, start : start + tile].float().transpose(1, 2) for x in (k, v))
        p = torch.exp(queries @ keys.transpose(2, 3) * scale - shift)
        if causal:
            p = p.masked_fill(torch.arange(start, start + keys.shape[2]) > row + sk - sq, 0.0)
        ds = (p * (grown @ values.transpose(2, 3) - delta)).to(half).float()
        dq += ds @ keys
        dk[:, start : start + tile] = (ds.transpose(2, 3) @ queries).transpose(1, 2)
        dv[:, start : start + tile] = (p.to(half).float().transpose(2, 3) @ grown).transpose(1, 2)
    dq = dq.reshape(b, hq, sq, d).transpose(1, 2)
    return (scale * dq).to(q.dtype).contiguous(), (scale * dk).to(q.dtype), dv.to(q.dtype)


def short_accumulator_gemm(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, promoted: int = 128) -> Tensor:
    """c [m, n] bf16 as Hopper's fp8 tensor cores give it: 32 products at a time, with a promotion to fp32 per 128.

    The products of an instruction and its accumulator are aligned to the largest of them and cut at 13 fraction bits,
    the sum once more (the behaviour DeepSeek-V3's report and DeepGEMM work around).

    ``promoted`` is how many columns of K, a multiple of 128 with one scale, go through that adder before a promotion.
    """
    columns = torch.arange(len(b)) // 128
    total = torch.zeros(len(a), len(b))
    for t in range(0, a_scale.shape[1], promoted // 128):
        block = slice(128 * t, 128 * t + promoted)
        partial = short_dot(a[:, block].double(), b[:, block].double())
        total += partial.float() * (a_scale[:, t, None] * b_scale[columns, t])
    return total.to(torch.bfloat16)


def short_dot(a: Tensor, b: Tensor, bits: int = 13) -> Tensor:
    """a [m, k] times b [n, k] transposed, both fp64, as such tensor cores add it up: no promotion."""
    acc = torch.zeros(len(a), len(b), dtype=torch.float64)
    for k in range(0, a.shape[1], 32):
        addends = torch.cat([a[:, None, k : k + 32] * b[None, :, k : k + 32], acc[..., None]], -1)
        acc = _cut(addends, addends.abs().amax(-1, keepdim=True), bits).sum(-1)
        acc = _cut(acc, acc.abs(), bits)
    return acc


def _cut(x: Tensor, largest: Tensor, bits: int) -> Tensor:
    """x towards zero to multiples of 2^-bits times the power of two at or below ``largest``."""
    step = torch.exp2(torch.floor(torch.log2(largest.clamp_min(2.0**-100))) - bits)
    return torch.trunc(x / step) * step


def fp8_tokens(data: Any, request: int) -> torch.Tensor:
    """[1, tokens, 1, 576] fp64: a request's tokens read from the bytes one by one."""
    _, kv_cache, block_table, seqlens, *_ = data
    tokens = torch.empty(int(seqlens[request]), 576, dtype=torch.float64)
    for t, token in enumerate(tokens):
        row = kv_cache[int(block_table[request, t // 64]), t % 64, 0].view(torch.uint8)
        scales = row[512:528].view(torch.float32).double()
        token[:512] = row[:512].view(kv_cache.dtype).double() * scales.repeat_interleave(128)
        token[512:] = row[528:].view(torch.bfloat16).double()
    return tokens[None, :, None]
