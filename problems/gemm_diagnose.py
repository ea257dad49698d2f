# SPDX-License-Identifier: MIT
"""Likely mistakes of a block-scaled fp8 product, as the values that they give: for fp8_gemm and amd_fp8_mm.

They add to the mutants, which a check must refuse, and are exact: which K block is missing, which scale is read.
Used by the judge only; never staged on a runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gemm import K_BLOCK, N_BLOCK
from utils import reference_dtype

AXES = {"c": ("row", "column")}
ROWS, COLUMNS = 24, 96        # of a sample
SLABS = 4                     # parts of a K block that one instruction multiplies: 32 columns each

Hypothesis = tuple[str, str, tuple[Tensor, ...]]


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """Index (rows [r, 1], columns [c]) of a sample that crosses ``wrong`` and ``others`` [positions, 2] of c."""
    def chosen(axis: int, count: int) -> Tensor:
        return torch.unique(torch.cat([_spread(wrong, 2 * count // 3)[:, axis], _spread(others, count // 3)[:, axis]]))
    return chosen(0, ROWS)[:, None], chosen(1, COLUMNS)


def hypotheses(case: Mapping[str, Any], data: Sequence[Tensor], index: tuple[Tensor, ...]) -> Iterator[Hypothesis]:
    """(name, sentence, (c at ``index``,)) of each mistake; scales of a: [r, t], of b: [c, t], t blocks of K."""
    a, b, a_scale, b_scale = data[:4]
    rows, columns = index[0].flatten(), index[1].flatten()
    slabs = _slabs(a, b, rows, columns)                        # [t, SLABS, r, c], scales left out
    parts = slabs.sum(1)
    sa, sb = a_scale[rows].to(parts.dtype), b_scale[columns // N_BLOCK].to(parts.dtype)
    blocks = parts.shape[0]

    def product(sa: Tensor, sb: Tensor, parts: Tensor = parts) -> tuple[Tensor, ...]:
        return (torch.einsum("trc,rt,ct->rc", parts, sa, sb),)

    terms = parts * sa.T[:, :, None] * sb.T[:, None, :]
    total = terms.sum(0)
    one_sa, one_sb = torch.ones_like(sa), torch.ones_like(sb)
    yield "a_scale_ignored", "the scales of a are left out", product(one_sa, sb)
    yield "b_scale_ignored", "the scales of b are left out", product(sa, one_sb)
    yield "a_scale_squared", "the scales of a are applied twice", product(sa * sa, sb)
    yield "b_scale_squared", "the scales of b are applied twice", product(sa, sb * sb)
    if blocks > 1:
        yield from _blocks(terms, total)
        for step, words in ((1, "next"), (-1, "one before")):
            late_a, late_b = sa.roll(-step, 1), sb.roll(-step, 1)
            yield f"a_scale_block_{step:+d}", f"each K block uses the scale of a of the {words}", product(late_a, sb)
            yield f"b_scale_block_{step:+d}", f"each K block uses the scale of b of the {words}", product(sa, late_b)
            yield f"scale_block_{step:+d}", f"each K block uses both scales of the {words}", product(late_a, late_b)
    for slab in range(SLABS):
        low = slab * K_BLOCK // SLABS
        span = f"columns {low}..{low + K_BLOCK // SLABS - 1}"
        yield (f"slab_{slab}_missing", f"{span} of every K block of {K_BLOCK} are left out",
               product(sa, sb, parts - slabs[:, slab]))
        last = parts.clone()
        last[-1] -= slabs[-1, slab]
        yield f"last_slab_{slab}_missing", f"{span} of the last K block are left out", product(sa, sb, last)
    yield ("half_blocks", "only the first half of every K block of 128 is multiplied",
           product(sa, sb, slabs[:, : SLABS // 2].sum(1)))
    for kind, rounding in (("down", torch.floor), ("up", torch.ceil), ("to the nearest", torch.round)):
        sa_2, sb_2 = (torch.where(s == 0, 0.0, s.sign() * torch.exp2(rounding(s.abs().log2()))) for s in (sa, sb))
        yield f"scales_powers_{kind}", f"scales rounded {kind} power of two", product(sa_2, sb_2)
    yield ("a_scale_of_block_row", "128 rows of a share the scale of the first of them",
           product(a_scale[rows // 128 * 128].to(parts.dtype), sb))
    for name, scale, picked in (("a", a_scale, rows), ("b", b_scale, columns // N_BLOCK)):
        other = _other_order(scale)[picked].to(parts.dtype)
        yield (f"{name}_scale_transposed", f"the scales of {name} are read in the other memory order",
               product(other, sb) if name == "a" else product(sa, other))


def _blocks(terms: Tensor, total: Tensor) -> Iterator[Hypothesis]:
    """Blocks of K left out, or counted twice."""
    blocks = len(terms)
    for block in range(blocks):
        what = f"K block {block} of {blocks} (columns {block * K_BLOCK}..{(block + 1) * K_BLOCK - 1})"
        yield f"k_block_{block}_missing", f"{what} is missing", (total - terms[block],)
        yield f"k_block_{block}_twice", f"{what} is counted twice", (total + terms[block],)
    summed = terms.cumsum(0)
    for block in range(1, blocks):
        yield f"k_first_{block}", f"only the first {block} of {blocks} K blocks are summed", (summed[block - 1],)
        yield (f"k_last_{blocks - block}", f"only the last {blocks - block} of {blocks} K blocks are summed",
               (total - summed[block - 1],))
    yield "k_even", "only the even K blocks are summed", (terms[::2].sum(0),)
    yield "k_odd", "only the odd K blocks are summed", (terms[1::2].sum(0),)


def _slabs(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    dtype = reference_dtype(a.device)

    def split(x: Tensor, picked: Tensor) -> Tensor:
        codes = x.view(torch.uint8).index_select(0, picked).view(x.dtype).to(dtype)
        return codes.reshape(len(picked), -1, SLABS, K_BLOCK // SLABS)

    return torch.einsum("rtsk,ctsk->tsrc", split(a, rows), split(b, columns))


def _other_order(scale: Tensor) -> Tensor:
    """The matrix as a kernel sees it that reads row-major data as column-major, or the reverse."""
    rows, blocks = scale.shape
    if scale.stride(0) == 1 and rows > 1:
        return scale.t().contiguous().flatten().view(rows, blocks)
    return scale.contiguous().flatten().view(blocks, rows).t()


def _spread(positions: Tensor, count: int) -> Tensor:
    """Up to ``count`` of the positions, evenly spaced."""
    if not len(positions):
        return positions
    return positions[torch.linspace(0, len(positions) - 1, min(count, len(positions))).long()]
