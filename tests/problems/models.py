# SPDX-License-Identifier: MIT
"""Plain statements of the problems, and models of the roundings that real kernels cannot avoid."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    maximum: str = "largest", round_weights: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """(o, lse) as a fused kernel computes them: fp32 scores and sums, tile by tile, with the weights rounded to the
    data's dtype (or ``weights``) before they meet v, and their sum taken before that rounding.

    ``maximum``: what is subtracted: the "largest" score so far. Wrong are "none", the "first" tile's for ever, and
    "unmended", as of a kernel whose rare path does not run: sums stay as they are where the largest rises by over 2^24.
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
        if maximum == "none":
            above = torch.zeros_like(top)
        elif maximum == "first":
            above = torch.where(torch.isinf(top), above, top)
        shift = torch.where(torch.isinf(above), 0.0, above)
        shrink, p = torch.exp(top - shift), torch.exp(scores - shift)
        if maximum == "unmended":
            shrink = torch.where(~torch.isinf(top) & (above - top > 24 * math.log(2.0)), 1.0, shrink)
        rounded = p.to(weights or q.dtype).float() if round_weights is None else round_weights(p)
        acc = acc * shrink + torch.einsum("bhij,bhjd->bhid", rounded, values)
        total = total * shrink + p.sum(-1, keepdim=True)
        top = above
    o = torch.where(total == 0, 0.0, acc / total).transpose(1, 2).to(q.dtype).contiguous()
    return o, (top + total.log()).squeeze(-1)


def tiled_gradients(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, dout: Tensor, lse: Tensor, causal: bool, scale: float, tile: int = 64,
    weights: torch.dtype | None = None, round_weights: Callable[[Tensor], Tensor] | None = None,
    round_delta: Callable[[Tensor], Tensor] = lambda delta: delta,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) as a fused kernel computes them: fp32 scores and sums, tile of keys by tile, p and ds rounded to the
    data's dtype (or ``weights``) before they meet dout, k and q.
    """
    b, sq, hq, d = q.shape
    sk, hk, half = k.shape[1], k.shape[2], weights or q.dtype
    queries, grown, out = (x.float().transpose(1, 2).reshape(b, hk, -1, d) for x in (q, dout, o))    # (head, row) rows
    rounded = round_weights or (lambda x: x.to(half).float())
    delta, shift = round_delta((grown * out).sum(-1, keepdim=True)), lse.reshape(b, hk, -1, 1)
    row = torch.arange(sq).repeat(hq // hk)[:, None]
    dq, dk, dv = torch.zeros_like(queries), torch.empty(k.shape), torch.empty(v.shape)
    for start in range(0, sk, tile):
        keys, values = (x[:, start : start + tile].float().transpose(1, 2) for x in (k, v))
        p = torch.exp(queries @ keys.transpose(2, 3) * scale - shift)
        if causal:
            p = p.masked_fill(torch.arange(start, start + keys.shape[2]) > row + sk - sq, 0.0)
        ds = rounded(p * (grown @ values.transpose(2, 3) - delta))
        dq += ds @ keys
        dk[:, start : start + tile] = (ds.transpose(2, 3) @ queries).transpose(1, 2)
        dv[:, start : start + tile] = (rounded(p).transpose(2, 3) @ grown).transpose(1, 2)
    dq = dq.reshape(b, hq, sq, d).transpose(1, 2)
    return (scale * dq).to(q.dtype).contiguous(), (scale * dk).to(q.dtype), dv.to(q.dtype)


def short_accumulator_gemm(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, promoted: int = 128, bits: int = 13,
) -> Tensor:
    """c [m, n] bf16 as Hopper's fp8 tensor cores give it: 32 products at a time, with a promotion to fp32 per 128.

    The products of an instruction and its accumulator are aligned to the largest of them and cut at 13 fraction bits,
    the sum once more (the behaviour DeepSeek-V3's report and DeepGEMM work around).

    ``promoted`` is how many columns of K, a multiple of 128 with one scale, go through that adder before a promotion.
    """
    columns = torch.arange(len(b)) // 128
    total = torch.zeros(len(a), len(b))
    for t in range(0, a_scale.shape[1], promoted // 128):
        block = slice(128 * t, 128 * t + promoted)
        partial = short_dot(a[:, block].double(), b[:, block].double(), bits)
        total += partial.float() * (a_scale[:, t, None] * b_scale[columns, t])
    return total.to(torch.bfloat16)


def unpromoted_gemm(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    """c [m, n] bf16 if such tensor cores add up all of K: between blocks the accumulator is multiplied to the scale of
    the next one, and never leaves the tensor core's short sums.
    """
    columns = torch.arange(len(b)) // 128
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    for t in range(a_scale.shape[1]):
        block = slice(128 * t, 128 * t + 128)
        scale = (a_scale[:, t, None] * b_scale[columns, t]).double()
        safe = torch.where(scale == 0, 1.0, scale)
        made = short_dot(a[:, block].double(), b[:, block].double(), acc=total / safe) * safe
        total = torch.where(scale == 0, total, made)
    return total.to(torch.bfloat16)


def short_dot(a: Tensor, b: Tensor, bits: int = 13, acc: Tensor | None = None) -> Tensor:
    """a [m, k] times b [n, k] transposed, both fp64, added to ``acc`` as such tensor cores do: no promotion."""
    acc = torch.zeros(len(a), len(b), dtype=torch.float64) if acc is None else acc
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
