# SPDX-License-Identifier: MIT
"""Likely mistakes in flash_attention_bwd, for the judge's diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from attention_queries import visible_keys
from reference import Visible, expected

AXES = {"dq": ("batch", "query", "head", "column"), "dk": ("batch", "key", "key head", "column"),
        "dv": ("batch", "key", "key head", "column")}
NAN = "a row that sees no key has an lse of -inf: a score less that is inf, and inf times 0 is NaN"
BLOCK = 64
MOST_BLOCKS = 16

Values = tuple[Tensor | None, Tensor | None, Tensor | None]


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(batch, row, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``: of
    dq, to which ``expected`` adds keys; of dk and dv after queries, the first ones, as no more are known here.
    """
    b, row, head = attention_diagnose.index(name, wrong, others, 1)
    return (b, row, head) if name == "dq" else (b, torch.zeros_like(row), head, b, row, head)


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[tuple[str, str, Values]]:
    """(name, sentence, (dq, dk, dv) of the rows of ``index``) of each mistake; None: not said."""
    q, k, v, o, dout, lse, causal, scale = data
    sq, sk, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]

    def values(changed: Any = data, visible: Visible | None = None, factor: float = 1.0) -> Values:
        dq, dk, dv = (part.values for part in expected(changed, index=index, visible=visible))
        return dq * factor, dk * factor, dv

    for name, times, sentence in (
        ("scale_doubled", 2.0, "p from scores with twice the softmax scale"),
        ("scale_halved", 0.5, "p from scores with half of the softmax scale"),
        ("scale_missing", 1 / scale, "p from scores without the softmax scale"),
        ("scale_squared", scale, "p from scores with the softmax scale applied twice"),
        ("log2e_missing", math.log(2.0), "exp2 of scores that miss a factor of log2(e)"),
    ):
        yield name, sentence, values((q, k, v, o, dout, lse, causal, scale * times), None, 1 / times)
    yield ("exp2_without_log2e", "exp2 in place of exp: scores and lse miss a factor of log2(e)",
           values((q, k, v, o, dout, lse * math.log(2.0), causal, scale * math.log(2.0)), None, 1 / math.log(2.0)))
    yield ("delta_added", "ds is p · (dout vᵀ + delta): delta is added",
           values((q, k, v, -o, dout, lse, causal, scale)))
    yield ("delta_scaled", "delta is multiplied by the softmax scale",
           values((q, k, v, o.double() * scale, dout, lse, causal, scale)))

    def mask(i: Tensor) -> Tensor:
        return visible_keys(i, sq, sk, causal)

    if group > 1:
        yield ("last_head_alone", "dk and dv hold the last query head of a group alone: overwritten, not summed",
               (None, *values(visible=lambda i, h: torch.where(h % group == group - 1, mask(i), 0))[1:]))
    yield ("last_visible_block_missing", f"each row's last block of {BLOCK} keys (the diagonal's) is missing",
           values(visible=lambda i, h: (mask(i) - 1).clamp_min(0) // BLOCK * BLOCK))
    yield from _of_blocks("key", sk, lambda upto: values(
        visible=lambda i, h: mask(i).clamp_max(upto)), lambda dq, dk, dv: (dq, None, None))
    yield from _of_blocks("query", sq, lambda upto: values(
        visible=lambda i, h: torch.where(i < upto, mask(i), 0)), lambda dq, dk, dv: (None, dk, dv))


def _of_blocks(
    what: str, length: int, first: Callable[[int], Values], kept: Callable[..., Values],
) -> Iterator[tuple[str, str, Values]]:
    """Blocks left out or counted twice; ``first(n)`` has the first n keys or queries alone, and all sums are linear."""
    blocks = -(-length // BLOCK)
    if not 2 <= blocks <= MOST_BLOCKS:
        return
    until = [first(min(BLOCK * n, length)) for n in range(blocks + 1)]

    def changed(block: int, times: int) -> Values:
        parts = zip(until[-1], until[block], until[block + 1], strict=True)
        return kept(*(whole + times * (after - before) for whole, before, after in parts))

    whose = {"key": "queries", "query": "keys"}[what]
    for block in range(blocks):
        rows = f"{BLOCK * block}..{min(BLOCK * (block + 1), length) - 1} ({block} of {blocks})"
        plural = {"key": "keys", "query": "queries"}[what]
        yield (f"{what}_block_{block}_missing", f"the block of {plural} {rows} is missing for all {whose}",
               changed(block, -1))
        yield f"{what}_block_{block}_twice", f"the block of {plural} {rows} is counted twice", changed(block, 1)
    for block in range(1, blocks):
        yield (f"first_{block}_{what}_blocks", f"only the first {block} of {blocks} blocks of {BLOCK} are read",
               kept(*until[block]))
