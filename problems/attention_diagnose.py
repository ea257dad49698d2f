# SPDX-License-Identifier: MIT
"""Likely mistakes of an attention kernel, as the values that they give: for flash_attention, mla_decode and their FP8
variants.

They add to the mutants, which a check must refuse: which block of keys is missing, what the mask hides by mistake, what
is wrong in the softmax. Used by the judge only; never staged on a runner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from utils import reference_dtype

BLOCK = 64                    # keys of a block, a page of mla_decode
GROUPS, ROWS = 3, 12          # of a sample: (batch, key head) pairs, and rows of each

Answer = tuple[Tensor, Tensor]
Hypothesis = tuple[str, str, tuple[Tensor | None, Tensor | None]]


@dataclass(frozen=True)
class Group:
    """Rows ``here`` of a sample that share keys: scores [r, s], not scaled, values [s, dv], ``visible`` [r]."""

    here: Tensor
    scores: Tensor
    values: Tensor
    visible: Tensor
    scale: float


def group(here: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Group:
    """q [r, d], k [s, d], v [s, dv] of any float dtype."""
    dtype = reference_dtype(q.device)
    return Group(here, q.to(dtype) @ k.to(dtype).T, v.to(dtype), visible, scale)


def index(name: str, wrong: Tensor, others: Tensor, heads_per_group: int) -> tuple[Tensor, ...]:
    """(batch, query, head) vectors of a few rows around ``wrong`` and ``others``: positions in o or lse, first axes.

    Rows are taken from few (batch, key head) pairs, since a pair costs a pass over its keys.
    """
    order = [0, 2, 1] if name == "lse" else [0, 1, 2]
    wrong, others = (torch.unique(part[:, :3][:, order], dim=0) for part in (wrong, others))
    keys = _pair(wrong, heads_per_group)
    pairs = torch.unique(keys[torch.linspace(0, len(keys) - 1, min(GROUPS, len(keys))).long()])
    rows = []
    for pair in pairs:
        mine = wrong[keys == pair]
        rows.append(mine[torch.linspace(0, len(mine) - 1, min(ROWS, len(mine))).long()])
        near = others[_pair(others, heads_per_group) == pair]
        rows.append(near[torch.linspace(0, len(near) - 1, min(ROWS // 2, len(near))).long()] if len(near) else near)
    return tuple(torch.unique(torch.cat(rows), dim=0).T)


def _pair(rows: Tensor, heads_per_group: int) -> Tensor:
    return rows[:, 0] * 65536 + rows[:, 2] // heads_per_group


def plain(groups: Sequence[Group]) -> Answer:
    """(o, lse) of the unchanged groups, rows in the order of ``here``: for operands that are wrong themselves."""
    return _over_all(groups, lambda each: _softmax(each.scores * each.scale, each.values, each.visible))


def _over_all(groups: Sequence[Group], function: Callable[[Group], Answer]) -> Answer:
    count = sum(len(each.here) for each in groups)
    device, dtype = groups[0].values.device, groups[0].values.dtype
    o = torch.empty(count, groups[0].values.shape[1], dtype=dtype, device=device)
    lse = torch.empty(count, dtype=dtype, device=device)
    for each in groups:
        o[each.here], lse[each.here] = function(each)
    return o, lse


def hypotheses(groups: Sequence[Group], causal: bool, longest: int) -> Iterator[Hypothesis]:
    """(name, sentence, (o, lse)) of each mistake, rows in the order of ``here``; ``longest``: keys of the longest row.
    """
    def over_all(function: Callable[[Group], Answer]) -> Answer:
        return _over_all(groups, function)

    yield from _of_softmax(over_all)
    yield from _of_mask(over_all, causal)
    yield from _of_blocks(over_all, -(-longest // BLOCK))


def _softmax(scores: Tensor, values: Tensor, visible: Tensor) -> Answer:
    """(o, lse) from scaled scores."""
    hidden = torch.arange(scores.shape[1], device=scores.device) >= visible[:, None]
    p, top, total = _weights(scores.masked_fill(hidden, -torch.inf))
    return p @ values / torch.where(total == 0, 1.0, total), (top + total.log()).squeeze(1)


def _weights(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(weights against the largest score, that, their sum) per row; scores that are hidden are -inf."""
    top = scores.amax(1, keepdim=True) if scores.shape[1] else torch.full_like(scores.sum(1, keepdim=True), -torch.inf)
    top = torch.where(torch.isinf(top), 0.0, top)
    p = (scores - top).exp()
    return p, top, p.sum(1, keepdim=True)


def _masked(each: Group, scale: float | None = None) -> Tensor:
    hidden = torch.arange(each.scores.shape[1], device=each.scores.device) >= each.visible[:, None]
    return (each.scores * (each.scale if scale is None else scale)).masked_fill(hidden, -torch.inf)


def _of_softmax(over_all: Callable[[Callable[[Group], Answer]], Answer]) -> Iterator[Hypothesis]:
    log2e = math.log2(math.e)
    for name, factor, sentence in (
        ("exp2_without_log2e", 1 / log2e, "exp2 in place of exp: the scores miss a factor of log2(e)"),
        ("log2e_twice", log2e, "the scores are multiplied by log2(e) once too often"),
        ("scale_doubled", 2.0, "the softmax scale is twice what it should be"),
        ("scale_halved", 0.5, "the softmax scale is half of what it should be"),
    ):
        yield name, sentence, over_all(lambda each, factor=factor: _softmax(
            each.scores * each.scale * factor, each.values, each.visible))
    yield "scale_twice", "the softmax scale is applied twice", over_all(
        lambda each: _softmax(each.scores * each.scale**2, each.values, each.visible))

    def plain(each: Group, what: str) -> Answer:
        p, top, total = _weights(_masked(each))
        o, lse = p @ each.values, (top + total.log()).squeeze(1)
        safe = torch.where(total == 0, 1.0, total)
        if what == "not_divided":
            return o, lse
        wanted = {
            "lse_without_max": total.log(), "lse_max_alone": torch.where(total == 0, -torch.inf, top),
            "lse_sum": total, "lse_unscaled": top / each.scale + total.log(), "lse_negative": -(top + total.log()),
            "lse_max_in_base_2": top * log2e + total.log(), "lse_sum_in_base_2": top + total.log2(),
        }[what]
        return o / safe, wanted.squeeze(1)

    yield ("not_divided", "o is not divided by the row's sum of exponentials",
           over_all(lambda each: plain(each, "not_divided")))
    for name, sentence in (
        ("lse_without_max", "lse is the logarithm of the sum alone: the row maximum is not added"),
        ("lse_max_alone", "lse is the row maximum alone: the logarithm of the sum is not added"),
        ("lse_sum", "lse is the sum, not its logarithm"),
        ("lse_unscaled", "lse adds the row maximum of scores that are not scaled"),
        ("lse_negative", "lse with its sign flipped"),
        ("lse_max_in_base_2", "lse adds a row maximum in base 2 to a natural logarithm"),
        ("lse_sum_in_base_2", "lse adds a logarithm in base 2 to a natural row maximum"),
    ):
        yield name, sentence, over_all(lambda each, name=name: plain(each, name))
    for tile in (64, 128):
        for both in (False, True):
            what = "neither accumulator nor sum is" if both else "the accumulator is not"
            yield (f"not_rescaled_{tile}{'_both' if both else ''}",
                   f"{what} rescaled when the row maximum grows (blocks of {tile} keys)",
                   over_all(lambda each, tile=tile, both=both: _not_rescaled(each, tile, both)))


def _not_rescaled(each: Group, tile: int, both: bool) -> Answer:
    """An online softmax that does not rescale its running sums."""
    scores = _masked(each)
    p, top, total = _weights(scores)
    padded = torch.nn.functional.pad(scores, (0, -scores.shape[1] % tile), value=-torch.inf)
    running = padded.reshape(len(scores), -1, tile).amax(2).cummax(1).values.repeat_interleave(tile, 1)
    grown = (top - running[:, : scores.shape[1]]).clamp_max(300.0)       # a row that has seen no key yet has -inf
    weights = torch.where(p == 0, 0.0, p * grown.exp())
    below = weights.sum(1, keepdim=True) if both else total
    o = weights @ each.values / torch.where(below == 0, 1.0, below)
    return o, (top + below.log()).squeeze(1)


def _of_mask(over_all: Callable[[Callable[[Group], Answer]], Answer], causal: bool) -> Iterator[Hypothesis]:
    def shifted(each: Group, by: int) -> Answer:
        visible = (each.visible + by).clamp(0, each.scores.shape[1])
        return _softmax(each.scores * each.scale, each.values, visible)

    def zero_scores(each: Group, upto: Callable[[int], int], counted: bool) -> Answer:
        """Keys that should be hidden take part with a score of 0, up to ``upto(keys)`` of them in all."""
        p, top, total = _weights(_masked(each))
        scores = each.scores.shape[1]
        more = (upto(scores) - each.visible[:, None]).clamp_min(0) * (-top).exp()
        o = p @ each.values
        if counted:                            # their values count as well, if they have any
            hidden = (torch.arange(scores, device=p.device) >= each.visible[:, None]).to(p.dtype)
            o = o + (-top).exp() * (hidden @ each.values)
        total = total + more
        return o / torch.where(total == 0, 1.0, total), (top + total.log()).squeeze(1)

    yield ("mask_one_less", "every row sees one key too few: < in place of <= in the mask, or a length off by one",
           over_all(lambda each: shifted(each, -1)))
    yield "mask_one_more", "every row sees one key too many", over_all(lambda each: shifted(each, 1))
    if causal:
        yield ("hidden_count_as_zero", "hidden keys take part with a score of 0 in place of -inf",
               over_all(lambda each: zero_scores(each, lambda keys: keys, True)))
    for tile in (64, 128):
        yield (f"padding_counts_{tile}",
               f"the keys that fill up the last block of {tile} take part with a score of 0 in place of -inf",
               over_all(lambda each, tile=tile: zero_scores(each, lambda keys: -(-keys // tile) * tile, False)))


@dataclass(frozen=True)
class _Sums:
    """Sums over blocks of keys: ``o`` [r, block, dv] and ``total`` [r, block], running ones, and the largest score."""

    o: Tensor
    total: Tensor
    o_until: Tensor
    total_until: Tensor
    top: Tensor
    last: Tensor                # the block of the last key that a row sees

    @classmethod
    def of(cls, each: Group) -> _Sums:
        p, top, _ = _weights(_masked(each))
        fill = -p.shape[1] % BLOCK
        parts = torch.nn.functional.pad(p, (0, fill)).reshape(len(p), -1, BLOCK)
        values = torch.nn.functional.pad(each.values, (0, 0, 0, fill)).reshape(-1, BLOCK, each.values.shape[1])
        o, total = torch.einsum("rjk,jkd->rjd", parts, values), parts.sum(2)
        last = (each.visible - 1).clamp_min(0) // BLOCK
        return cls(o, total, o.cumsum(1), total.cumsum(1), top, last)

    def answer(self, o: Tensor, total: Tensor) -> Answer:
        total = total[:, None].clamp_min(0)
        return o / torch.where(total == 0, 1.0, total), (self.top + total.log()).squeeze(1)

    def changed(self, block: int, times: int) -> Answer:
        """Block ``block`` counted ``times`` more times; a row without that block is unchanged."""
        if block >= self.o.shape[1]:
            return self.answer(self.o_until[:, -1], self.total_until[:, -1])
        return self.answer(self.o_until[:, -1] + times * self.o[:, block],
                           self.total_until[:, -1] + times * self.total[:, block])

    def first(self, blocks: int) -> Answer:
        return self.answer(self.o_until[:, : blocks][:, -1], self.total_until[:, : blocks][:, -1])

    def rest(self, blocks: int) -> Answer:
        """All but the first ``blocks``."""
        return self.answer(self.o[:, blocks:].sum(1), self.total[:, blocks:].sum(1))

    def without_last(self) -> Answer:
        rows = torch.arange(len(self.last), device=self.last.device)
        return self.answer(self.o_until[:, -1] - self.o[rows, self.last],
                           self.total_until[:, -1] - self.total[rows, self.last])


def _of_blocks(over_all: Callable[[Callable[[Group], Answer]], Answer], blocks: int) -> Iterator[Hypothesis]:
    """Blocks of keys left out, counted twice, or used alone."""
    if blocks < 2:
        return
    known: dict[int, _Sums] = {}

    def sums(each: Group) -> _Sums:
        return known.setdefault(id(each), known.get(id(each)) or _Sums.of(each))

    def seen(each: Group, function: Callable[[_Sums], Answer]) -> Answer:
        if not each.values.shape[0]:                     # a request without tokens: nothing to leave out
            return _softmax(each.scores, each.values, each.visible)
        return function(sums(each))

    def all_seen(function: Callable[[_Sums], Answer]) -> Answer:
        return over_all(lambda each: seen(each, function))

    yield ("last_visible_block_missing", f"each row's last block of {BLOCK} keys (the diagonal's) is missing",
           all_seen(lambda s: s.without_last()))
    for block in range(blocks):
        what = f"the block of keys {block * BLOCK}..{(block + 1) * BLOCK - 1} ({block} of {blocks})"
        yield (f"key_block_{block}_missing", f"{what} is missing",
               all_seen(lambda s, block=block: s.changed(block, -1)))
        yield (f"key_block_{block}_twice", f"{what} is counted twice",
               all_seen(lambda s, block=block: s.changed(block, 1)))
    for block in range(1, blocks):
        yield (f"first_{block}_blocks", f"only the first {block} of {blocks} blocks of {BLOCK} keys are read",
               all_seen(lambda s, block=block: s.first(block)))
        yield (f"last_{blocks - block}_blocks", f"only the last {blocks - block} of {blocks} blocks of {BLOCK} keys "
               "are read", all_seen(lambda s, block=block: s.rest(block)))
