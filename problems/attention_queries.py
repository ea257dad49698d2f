# SPDX-License-Identifier: MIT
"""Queries and keys of attention over dense tensors: how they are drawn, what a mask leaves visible, which are sampled.

Shared by flash_attention and flash_attention_bwd; imports torch and utils only, as it is staged on a runner.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attention import steep_levels, steep_signs
from utils import sample_positions

TILE = 64                     # granularity of "the last tile" in samples


def random_operands(
    batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, dtype: torch.dtype, rng: torch.Generator,
    levels: tuple[float, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """(q, k, v), standard normal from ``rng``, on its device.

    With a softmax scale of dim^-0.5 scores are standard normal: far enough from uniform (an average of v is off by
    e-fold weights) while a long row still spreads over thousands of keys, so that power draw is that of real runs. A
    random sixteenth of the query rows is four times larger: sharp rows, which rescale an online softmax again and
    again.

    ``levels``: scores are steep as ``attention.steep_levels`` says, each with the sign of its query
    (``attention.steep_signs``). A number is added to all columns of q, and one to all of k, whose normals add up to 0
    in every row, so that scores of one level keep their differences.
    """
    def normal(length: int, heads: int) -> Tensor:
        return torch.randn(batch, length, heads, dim, generator=rng, device=rng.device)

    q = normal(sq, hq)
    sharp = torch.rand(batch, sq, hq, 1, generator=rng, device=rng.device) < 1 / 16
    q = torch.where(sharp, 4 * q, q)
    k, v = normal(sk, hk), normal(sk, hk)
    if levels:
        size = (max(levels) * dim**-0.5) ** 0.5
        q = q + size * steep_signs(q, rng)
        k = k - k.mean(-1, keepdim=True) + _of_keys(batch, hk, steep_levels(sk, rng.device, levels)) / (size * dim**0.5)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _of_keys(batch: int, heads: int, levels: Tensor) -> Tensor:
    """[batch, keys, heads, 1] from [2, keys]."""
    which = (torch.arange(batch)[:, None] + torch.arange(heads)) % 2
    return levels[which.to(levels.device)].transpose(1, 2).unsqueeze(-1)


def visible_keys(rows: Tensor, sq: int, sk: int, causal: bool) -> Tensor:
    """How many keys (a prefix) each query row sees: all, or bottom-right aligned min(sk, max(0, i + 1 + sk - sq))."""
    return (rows + 1 + sk - sq).clamp(0, sk) if causal else torch.full_like(rows, sk)


def visible_pairs(sq: int, sk: int, causal: bool) -> int:
    """How many (query, key) pairs a head computes: exactly, mask included."""
    if not causal:
        return sq * sk
    first = max(0, sq - sk)                      # rows before it see no key
    few = first + 1 + sk - sq                    # keys the first of the others sees
    rows = sq - first
    return rows * (few + sk) // 2


def sample_rows(batch: int, sq: int, hq: int, sample: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """About ``sample`` rows as (batch, query, head) index vectors: few (batch, head) pairs with many queries each,
    since a pair costs a pass over its keys. Heads 0, 1, a random one and the last, first and last batch are included.
    """
    rng = torch.Generator().manual_seed(seed)
    pairs = max(4, sample // 16)
    heads = [0, min(1, hq - 1), int(torch.randint(0, hq, (), generator=rng)), hq - 1]
    batches = [0, batch - 1, int(torch.randint(0, batch, (), generator=rng)), batch - 1]
    for _ in range(4, pairs):
        batches.append(int(torch.randint(0, batch, (), generator=rng)))
        heads.append(int(torch.randint(0, hq, (), generator=rng)))
    rows = []
    for b, h in sorted(set(zip(batches, heads, strict=True))):
        queries = sample_positions(sq, max(8, sample // pairs), TILE, rng)
        rows.append(torch.stack([torch.full_like(queries, b), queries, torch.full_like(queries, h)]))
    b_of, i_of, h_of = torch.cat(rows, dim=1)
    return b_of, i_of, h_of
