# SPDX-License-Identifier: MIT
"""Which known mistake gives the answer that came out: a problem's mutants and its ``diagnose.py``, tried on a sample.

A mistake is named if what it predicts is within the bound of nearly all wrong elements looked at, and if the elements
that are right stay right under it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scoring.diagnosis.relations import FIT, Output, close, take

if TYPE_CHECKING:
    from scoring.problem import Problem

SHOWN = 3                   # mistakes that are named if several give the same answer
_SMALL = 1e9                # useful FLOP up to which a reference may be computed whole


@dataclass(frozen=True)
class Suspect:
    """A mistake that explains the outputs named in ``explains`` and is at odds with those in ``contradicts``."""

    name: str
    sentence: str
    explains: tuple[str, ...]
    contradicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scene:
    """All that a suspect is judged by: ``outputs`` are the compared ones, right and wrong, by name."""

    problem: Problem
    params: Mapping[str, Any]
    data: Any
    expectations: Sequence[Any]
    results: Sequence[Tensor]
    outputs: Mapping[str, Output]
    deadline: float             # of time.monotonic()

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline


def suspects(scene: Scene) -> tuple[list[Suspect], bool]:
    """(the mistakes that explain most wrong outputs, whether all were tried before the deadline)."""
    found: list[Suspect] = []
    wrong = [name for name, output in scene.outputs.items() if output.count]
    complete = True
    tried = _tried(scene)
    while True:
        try:
            suspect = next(tried)
        except StopIteration:
            break
        if suspect is not None:
            found.append(suspect)
        if scene.late:
            complete = False
            break
    if not found:
        return [], complete

    def rank(suspect: Suspect) -> tuple[int, int]:
        return -len(suspect.explains), len(suspect.contradicts)

    best = min(map(rank, found))
    kept = [suspect for suspect in found if rank(suspect) == best]
    if len(kept[0].explains) < len(wrong):      # the other outputs may have a mistake of their own
        told = set(kept[0].explains)
        kept = kept[:1] + [suspect for suspect in found if not told & set(suspect.explains)][:1]
    return kept[:SHOWN], complete


def _tried(scene: Scene) -> Iterator[Suspect | None]:
    """One by one, None for each that is cleared; a suspect that cannot be computed is cleared."""
    module = optional(scene.problem, "mutants")
    for name, mutant in (module.MUTANTS.items() if module else ()):
        if mutant.transform_outputs is not None and _applies(mutant, scene.params):
            yield _attempt(_by_outputs, scene, name, mutant)
    hints = optional(scene.problem, "diagnose")
    index = _attempt(_index, scene, hints)
    if index is None:
        return
    right = _attempt(_expected, scene, scene.data, index[0])
    if right is None:
        return
    for name, mutant in (module.MUTANTS.items() if module else ()):
        if mutant.transform_data is not None and _applies(mutant, scene.params):
            yield _attempt(_by_data, scene, name, mutant, index[0], right)
    if hints is not None and index[0] is not None:
        yield from _hypotheses(scene, hints, index[0], right)


def _hypotheses(scene: Scene, hints: ModuleType, index: Any, right: Sequence[Any]) -> Iterator[Suspect | None]:
    source = _attempt(hints.hypotheses, scene.params, scene.data, index)
    while source is not None:
        entry = _attempt(next, source, None)
        if entry is None:
            return
        name, sentence, values = entry
        yield _attempt(_by_values, scene, name, sentence, values, right)


def _by_outputs(scene: Scene, name: str, mutant: Any) -> Suspect | None:
    right = tuple(expectation.rounded() for expectation in scene.expectations)
    made = mutant.transform_outputs(scene.params, scene.data, right)
    explains: list[str] = []
    contradicts: list[str] = []
    for expectation, result in zip(scene.expectations, made, strict=True):
        output = scene.outputs.get(expectation.name)
        if output is None:
            continue
        whole = result if expectation.index is None else result[expectation.index]
        places = torch.cat([output.positions, _spread(output.values.numel(), output.positions.device)])
        got, wanted, bound = output.at(places)
        predicted = take(whole, places)
        good = _agrees(got, predicted, _allowance(bound, predicted))
        wrong = ~close(got, wanted, bound)
        _weigh(output, wrong, good, explains, contradicts)
    return Suspect(name, mutant.summary, tuple(explains), tuple(contradicts)) if explains else None


def _by_data(scene: Scene, name: str, mutant: Any, index: Any, right: Sequence[Any]) -> Suspect | None:
    made = _expected(scene, mutant.transform_data(scene.params, scene.data), index)
    return _compare(scene, name, mutant.summary, [(part.values, part.bound) for part in made], right)


def _by_values(
    scene: Scene, name: str, sentence: str, values: Sequence[Tensor | None], right: Sequence[Any]
) -> Suspect | None:
    predicted = [None if value is None else (value, _allowance(part.bound, value))
                 for value, part in zip(values, right, strict=True)]
    return _compare(scene, name, sentence, predicted, right)


def _compare(
    scene: Scene, name: str, sentence: str, predicted: Sequence[tuple[Tensor, Tensor] | None], right: Sequence[Any],
) -> Suspect | None:
    """Hold predictions, at the elements ``right`` is about, against what came out there."""
    explains: list[str] = []
    contradicts: list[str] = []
    for expectation, result, prediction in zip(right, scene.results, predicted, strict=True):
        output = scene.outputs.get(expectation.name)
        if output is None or prediction is None:
            continue
        got = result if expectation.index is None else _gather(result, expectation.index)
        got = got.to(torch.float64).reshape(expectation.values.shape)
        wrong = ~close(got, expectation.values.double(), expectation.bound.double())
        values, bound = (part.double() for part in prediction)
        _weigh(output, wrong, _agrees(got, values, bound), explains, contradicts)
    return Suspect(name, sentence, tuple(explains), tuple(contradicts)) if explains else None


def _weigh(output: Output, wrong: Tensor, good: Tensor, explains: list[str], contradicts: list[str]) -> None:
    """File an output under what its elements say of a prediction that is ``good`` where it comes true."""
    right = ~wrong
    stays = float(good[right].double().mean()) >= FIT if bool(right.any()) else True
    if not output.count:
        if not stays:
            contradicts.append(output.name)
    elif stays and bool(wrong.any()) and float(good[wrong].double().mean()) >= FIT:
        explains.append(output.name)


def _agrees(got: Tensor, predicted: Tensor, bound: Tensor) -> Tensor:
    return close(got, predicted, bound) | (torch.isnan(got) & torch.isnan(predicted))


def _allowance(bound: Tensor, predicted: Tensor) -> Tensor:
    """The bound of a predicted wrong value: that of the right one, and two roundings of bf16."""
    return bound + 2.0**-7 * predicted.abs().nan_to_num(0.0, posinf=0.0)


def _gather(x: Tensor, index: Sequence[Tensor]) -> Tensor:
    return x[tuple(part.to(x.device) for part in index)]


def _spread(total: int, device: torch.device) -> Tensor:
    return torch.linspace(0, total - 1, min(total, 2048), dtype=torch.float64, device=device).long()


def _index(scene: Scene, hints: ModuleType | None) -> tuple[Any] | None:
    """(the index of the elements to compute again,): the expectations' own, some around wrong ones, or None for all."""
    sampled = scene.expectations[0].index
    if sampled is not None:
        return (sampled,)
    output = next(output for output in scene.outputs.values() if output.count)
    if hints is not None:
        wrong, others = (
            torch.stack(torch.unravel_index(flat, tuple(output.values.shape)), 1).cpu()
            for flat in (output.positions, _spread(output.values.numel(), output.positions.device)))
        return (tuple(part.to(output.values.device) for part in hints.index(output.name, wrong, others)),)
    flops = scene.problem.binding.flops(scene.params)
    return (None,) if flops <= _SMALL else None


def _expected(scene: Scene, data: Any, index: Any) -> Sequence[Any]:
    reference = scene.problem.reference
    return tuple(reference.expected(data) if index is None else reference.expected(data, index=index))


def _applies(mutant: Any, params: Mapping[str, Any]) -> bool:
    try:
        return bool(mutant.applies(params))
    except KeyError:            # a case known from its data alone: what does not apply predicts the right answer
        return True


def optional(problem: Problem, name: str) -> ModuleType | None:
    """A file of the problem that it may do without, or do badly."""
    found: ModuleType | None = _attempt(getattr, problem, name) if (problem.path / f"{name}.py").is_file() else None
    return found


def _attempt(function: Any, *arguments: Any) -> Any:
    """The result, or None: whatever a reference says to strange data, a diagnosis must not replace the verdict."""
    try:
        return function(*arguments)
    except Exception:  # noqa: BLE001
        return None
