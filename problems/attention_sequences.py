# SPDX-License-Identifier: MIT
"""Batches of packed sequences of different lengths: their lengths, and what a kernel must read.

Imports torch only, because a runner stages it.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

# (queries, keys) of sequences that break schedulers or masks: none of either, one, and sizes near those of tiles.
EDGES = (
    (0, 5), (5, 0), (1, 67), (67, 1), (0, 0), (1, 1), (63, 65), (65, 63), (17, 129), (129, 17), (64, 64), (2, 200),
    (127, 3), (128, 128),
)
PADDING = 48                  # rows of k and v behind the last sequence, which belong to none


def sequence_lengths(batch: int, tq: int, tk: int, lens: str) -> list[tuple[int, int]]:
    """(queries, keys) of the sequences of a batch, before a seed permutes them; they add up to ``tq`` and ``tk``.

    ``uniform``: equal ones. ``tail``: the r-th longest has 1/r of the longest's queries and keys. ``decode``: as many
    queries each, keys as in ``tail``. ``mixed``: as many of ``EDGES`` as the totals have room for, the others equal.
    Depends on the case only, so that the work of a case can be counted without its data.
    """
    if lens == "uniform":
        return list(zip(_shares(tq, [1.0] * batch), _shares(tk, [1.0] * batch), strict=True))
    tail = [1 / (r + 1) for r in range(batch)]
    if lens == "tail":
        return list(zip(_shares(tq, tail), _shares(tk, tail), strict=True))
    if lens == "decode":
        return list(zip(_shares(tq, [1.0] * batch), _shares(tk, tail), strict=True))
    if lens != "mixed":
        raise ValueError(f"unknown lens {lens!r}; there are uniform, tail, decode, mixed")
    chosen: list[tuple[int, int]] = []
    for queries, keys in EDGES[: batch - 1]:
        if queries < tq and keys < tk:
            chosen.append((queries, keys))
            tq, tk = tq - queries, tk - keys
    rest = [1.0] * (batch - len(chosen))
    return chosen + list(zip(_shares(tq, rest), _shares(tk, rest), strict=True))


def _shares(total: int, weights: list[float]) -> list[int]:
    """``total`` in whole parts, as close to ``weights`` as possible; the parts add up to it."""
    sums = list(accumulate(weights))
    ends = [0, *(round(total * part / sums[-1]) for part in sums)]
    return [after - before for before, after in pairwise(ends)]


def offsets(lengths: list[int], device: torch.device) -> Tensor:
    """int32 [len + 1]: where each sequence begins, and where the last one ends."""
    return torch.tensor([0, *lengths]).cumsum(0).to(device=device, dtype=torch.int32)


def bounds(starts: Tensor) -> list[tuple[int, int]]:
    """(first row, row behind the last) of each sequence; waits for the device."""
    values = starts.tolist()
    return list(pairwise(values))
