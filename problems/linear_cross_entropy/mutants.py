# SPDX-License-Identifier: MIT
"""Wrong answers that the check of linear_cross_entropy must refuse in every case they apply to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from reference import IGNORED, TILE, expected, survey
from utils import Mutant

NAMES = ("dx", "dw", "loss")

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]
Transform = Callable[[Case, Any, Outputs], Outputs]


def _rows(output: Tensor) -> Tensor:
    """Numbers of the rows that hold anything: those that are sampled, or are zero by right."""
    return (output != 0).any(1).nonzero()[:, 0]


def _made_again(data: Any, outputs: Outputs) -> Outputs:
    """``outputs`` as they follow from other data of the same shapes."""
    made = expected(data, index=(_rows(outputs[0]), _rows(outputs[1])))
    return tuple(expectation.rounded(output.clone()) for expectation, output in zip(made, outputs, strict=True))


def _only(name: str, transform: Transform) -> Transform:
    """The outputs but for ``name``, which is as ``transform`` makes it."""
    def kept(case: Case, data: Any, outputs: Outputs) -> Outputs:
        made = transform(case, data, outputs)
        return tuple(new if name == at else old for at, new, old in zip(NAMES, made, outputs, strict=True))

    return kept


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return tuple(torch.zeros_like(output) for output in outputs)


def _scaled(factor: Callable[[Any], float]) -> Transform:
    return lambda case, data, outputs: tuple(
        (output.double() * factor(data)).to(output.dtype) for output in outputs)


def _over_all_tokens(data: Any) -> float:
    return float((data[2] != IGNORED).sum()) / len(data[2])


def _sum_over_tokens(data: Any) -> float:
    return float((data[2] != IGNORED).sum())


def _ignored_counted(case: Case, data: Any, outputs: Outputs) -> Outputs:
    x, w, target, smoothing = data
    return _made_again((x, w, target.clamp_min(0), smoothing), outputs)


def _first_columns(count: int, data: Any, outputs: Outputs) -> Outputs:
    """The first ``count`` columns of the vocabulary alone, the others' rows of dw zero; targets beyond stay whole."""
    x, w, target, smoothing = data
    kept = _rows(outputs[1])
    inside, beyond = kept[kept < count], kept[kept >= count]
    near = torch.where(target >= count, IGNORED, target)
    dx, dw, loss = expected((x, w[:count], near, smoothing), index=(_rows(outputs[0]), inside))
    made = [output.clone() for output in outputs]
    dx.rounded(made[0])
    made[1][:count] = dw.rounded(made[1][:count].clone())
    made[1][beyond] = 0
    made[2] = loss.rounded()
    return tuple(made)


def _last_columns(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return _first_columns((case["vocab"] - 1) // TILE * TILE, data, outputs)


def _half_of_columns(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return _first_columns(case["vocab"] // 2, data, outputs)


def _target_not_subtracted(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """dx is p w, dw is pᵀ x: what the target takes away is added again."""
    x, w, target, smoothing = data
    counted = target != IGNORED
    share = (1 - smoothing) / max(1, int(counted.sum()))
    dx, dw = (output.double() for output in outputs[:2])
    dx[counted] += share * w[target[counted].long()].double()
    dw.index_add_(0, target[counted].long(), share * x[counted].double())
    return dx.to(outputs[0].dtype), dw.to(outputs[1].dtype), outputs[2]


def _next_target(case: Case, data: Any, outputs: Outputs) -> Outputs:
    x, w, target, smoothing = data
    return _made_again((x, w, torch.where(target < 0, target, (target + 1) % len(w)), smoothing), outputs)


def _maximum_not_subtracted(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """exp(z) overflows fp32 from z = 88.7 on: infinity over infinity."""
    lost = (survey(data).lse > 88.7) & (data[2] != IGNORED)
    dx, dw, loss = (output.clone() for output in outputs)
    dx[lost] = torch.nan
    if bool(lost.any()):
        dw.fill_(torch.nan)
        loss.fill_(torch.nan)
    return dx, dw, loss


def _last_tokens(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """dw without what the last (up to) 64 tokens add, as if a last chunk had taken the place of the sum."""
    x, w, target, smoothing = data
    few = target.clone()
    few[(len(x) - 1) // TILE * TILE :] = IGNORED
    count, left = int((target != IGNORED).sum()), int((few != IGNORED).sum())
    made = expected((x, w, few, smoothing), index=(_rows(outputs[0])[:1], _rows(outputs[1])))[1]
    dw = made.rounded(outputs[1].double().float()) * (left / count)
    return outputs[0], dw, outputs[2]


def _smoothing_ignored(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return _made_again((*data[:3], 0.0), outputs)


def _unwritten(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """The last element of each output is what the judge has put there."""
    made = tuple(output.clone() for output in outputs)
    for output in made:
        output.view(-1)[-1] = torch.nan
    return made


def _all_counted(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """Every token has column 0 as its target, although all are ignored."""
    x, w, target, smoothing = data
    every = (torch.arange(len(x), device=x.device), torch.arange(len(w), device=x.device))
    made = expected((x, w, target.clamp_min(0), smoothing), index=every)
    return tuple(expectation.rounded(output.clone()) for expectation, output in zip(made, outputs, strict=True))


def _padding_counted(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """Columns that fill the last tile count, with logits of 0."""
    x, w, target, smoothing = data
    padded = torch.nn.functional.pad(w, (0, 0, 0, -len(w) % TILE))
    every = (torch.arange(len(x), device=x.device), torch.arange(len(w), device=x.device))
    made = expected((x, padded, target, smoothing), index=every)
    return tuple(expectation.rounded(output.clone()) for expectation, output in zip(made, outputs, strict=True))


def _counts(case: Case) -> bool:
    return bool(case["ignored"] != "all")


def _several(case: Case) -> bool:
    """Whether there is a choice: with a vocabulary of one column p is 1, and everything is 0."""
    return _counts(case) and case["vocab"] > 1


def _some(case: Case) -> bool:
    return bool(case["ignored"] == "some" and case["vocab"] > 1)


def _each(key: str, summary: str, transform: Transform, applies: Callable[[Case], bool]) -> dict[str, Mutant]:
    """The same mistake in each of the outputs alone."""
    return {f"{name}_{key}": Mutant(f"{name}: {summary}", transform_outputs=_only(name, transform), applies=applies)
            for name in NAMES}


MUTANTS: dict[str, Mutant] = {
    **_each("zero", "zero", _zeros, _several),
    **_each("over_all_tokens", "ignored tokens counted in the mean", _scaled(_over_all_tokens), _some),
    **_each("not_averaged", "a sum over tokens, not a mean", _scaled(_sum_over_tokens),
            lambda case: _several(case) and case["ignored"] == "none" and case["tokens"] > 1),
    **_each("ignored_counted", "ignored tokens count, with column 0 as their target", _ignored_counted, _some),
    **_each("last_columns", "the last (up to) 64 columns of the vocabulary left out", _last_columns,
            lambda case: _counts(case) and case["vocab"] > TILE),
    **_each("half_of_columns", "only the first half of the vocabulary", _half_of_columns, _several),
    **_each("next_target", "targets one column late", _next_target, _several),
    **{key: value for key, value in _each(
        "target_not_subtracted", "the target's column not subtracted", _target_not_subtracted, _counts,
    ).items() if not key.startswith("loss")},
    **_each("unwritten", "the last element is not written", _unwritten, lambda case: True),
    **_each("all_counted", "ignored tokens count although all are ignored", _all_counted,
            lambda case: not _counts(case)),
    **_each("padding_counted", "columns behind a vocabulary below a tile count", _padding_counted,
            lambda case: _counts(case) and case["vocab"] < TILE and not case.get("steep")),
    "maximum_not_subtracted": Mutant(
        "exp of logits, the maximum not subtracted", transform_outputs=_maximum_not_subtracted,
        applies=lambda case: bool(case.get("steep"))),
    "dw_last_tokens": Mutant("dw: the last (up to) 64 tokens left out", transform_outputs=_last_tokens,
                             applies=lambda case: _several(case) and case["tokens"] > TILE),
    **_each("smoothing_ignored", "labels not smoothed", _smoothing_ignored,
            lambda case: _several(case) and case["smoothing"] > 0),
}
