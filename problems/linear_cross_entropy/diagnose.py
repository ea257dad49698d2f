# SPDX-License-Identifier: MIT
"""Likely mistakes in linear_cross_entropy, for the judge's diagnosis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from reference import IGNORED, expected

AXES = {"dx": ("token", "column"), "dw": ("row of w", "column"), "loss": ("element",)}
NAN = "exp of a logit above 88.7 is inf, and inf / inf is NaN: subtract the maximum first"
BLOCK = 128
MOST_BLOCKS = 16
ROWS = 32

Values = tuple[Tensor, Tensor, Tensor]


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(tokens, rows of w) around ``wrong`` and ``others``, positions in the output ``name``. Of an output that is not
    ``name`` the first ones, as no more are known here.
    """
    rows = torch.unique(torch.cat([wrong[: 2 * ROWS // 3, 0], others[: ROWS // 3, 0]]))
    first = torch.zeros(1, dtype=rows.dtype, device=rows.device)
    return (first, rows) if name == "dw" else (rows if name == "dx" else first, first)


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[tuple[str, str, Values]]:
    """(name, sentence, (dx and dw at ``index``, loss)) of each mistake."""
    x, w, target, smoothing = data

    def values(x: Tensor = x, target: Tensor = target, smoothing: float = smoothing) -> Values:
        return tuple(part.values for part in expected((x, w, target, smoothing), index=index))

    dx, dw, loss = values()
    yield "base_2", "the loss is in bits: log2 in place of log", (dx, dw, loss / math.log(2.0))
    yield "sign", "the gradients have the wrong sign: y - p in place of p - y", (-dx, -dw, loss)
    yield from _of_blocks(data, index, (dx, dw, loss))
    if smoothing > 0:
        yield ("smoothing_all", "the smoothed labels add up to 1 + smoothing: the target keeps its whole weight",
               _whole_target(data, index, (dx, dw, loss)))


def _of_blocks(data: Any, index: tuple[Tensor, ...], right: Values) -> Iterator[tuple[str, str, Values]]:
    """Blocks of tokens that add nothing to dw, as when chunks overwrite each other."""
    x, w, target, smoothing = data
    blocks = -(-len(x) // BLOCK)
    if not 2 <= blocks <= MOST_BLOCKS:
        return
    count = max(1, int((target != IGNORED).sum()))
    alone = []
    for block in range(blocks):
        part = torch.full_like(target, IGNORED)
        rows = slice(BLOCK * block, BLOCK * (block + 1))
        part[rows] = target[rows]
        alone.append(expected((x, w, part, smoothing), index=index)[1].values * int((part != IGNORED).sum()) / count)
    for block in range(blocks):
        rows_text = f"{BLOCK * block}..{min(BLOCK * (block + 1), len(x)) - 1}"
        yield (f"block_{block}_missing", f"dw lacks what tokens {rows_text} add",
               (right[0], right[1] - alone[block], right[2]))
        yield (f"block_{block}_alone", f"dw has what tokens {rows_text} add, and nothing else",
               (right[0], alone[block], right[2]))


def _whole_target(data: Any, index: tuple[Tensor, ...], right: Values) -> Values:
    x, w, target, smoothing = data
    tokens, rows = (part.to(x.device) for part in index)
    count = max(1, int((target != IGNORED).sum()))
    dx, dw, loss = (part.clone() for part in right)
    hit = target[tokens]
    dx[hit >= 0] -= smoothing / count * w[hit[hit >= 0].long()].to(dx.dtype)
    dw -= smoothing / count * (target[None, :] == rows[:, None]).to(dw.dtype) @ x.to(dw.dtype)
    logits = (x[target >= 0].double() * w[target[target >= 0].long()].double()).sum()
    return dx, dw, loss - smoothing / count * logits
