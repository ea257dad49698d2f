# SPDX-License-Identifier: MIT
"""What a correct run is: nothing written outside the outputs, inputs untouched, every output within its bound.

The numbers behind a bound belong to the problem (``reference.expected``); the order of the questions belongs here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scoring.ipc.template import Answer
from scoring.judge.ranks import check_ranks
from scoring.record import Status

if TYPE_CHECKING:
    import torch

    from scoring.ipc.arena import Arena
    from scoring.judge.layout import SlotMemory
    from scoring.problem import Problem


@dataclass(frozen=True)
class Verdict:
    """PASSED, or the first thing found wrong and a sentence a person can act on."""

    status: Status
    message: str = ""
    wrong: tuple[Mapping[str, Any], ...] = ()        # the first wrong elements, as the record has them

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


def verify(
    problem: Problem, memory: SlotMemory, data: Any, expectations: Sequence[Any] | None, partial: Sequence[str] = (),
    *, given: Sequence[torch.Tensor] | None = None, case: Mapping[str, Any] | None = None,
) -> Verdict:
    """Judge what one call left in ``memory``.

    ``data`` is the judge's private copy of the inputs, ``expectations`` what ``reference.expected`` made of it (None
    for a problem that only has ``check_implementation``). ``partial`` names the outputs a peer promises; all if empty.
    ``case``, the parameters of ``generate_input``, only serves the explanation of a failure: a message whose first line
    is complete in itself.
    """
    damage = memory.damage(inputs=expectations is not None)
    if damage:
        return Verdict(Status.MUTATED_INPUT, damage)
    outputs = memory.outputs() if given is None else given      # private copies, of which there are some already
    names = [spec.name for spec in memory.layout.outputs]
    if expectations is None:
        answer, ranks = memory.layout.answer, memory.layout.ranks
        if answer is None:
            nested = ["tuple", [["tensor", index] for index in range(len(outputs))]]
            answer = Answer(["tensor", 0] if len(outputs) == 1 else nested, ())
        result = answer.build(outputs)
        good, message = check_ranks(problem, data, result) if ranks else problem.check(data, result)
        if good:
            _remember(memory, outputs)
            return Verdict(Status.PASSED, message)
        if ranks:
            return Verdict(Status.INCORRECT_NUMERICAL, message)
        from scoring.diagnosis import explain

        found = explain.explain_foreign(problem, data, outputs, memory.poisoned(), _LAST.get(memory.arena))
        return Verdict(
            Status.INCORRECT_NUMERICAL, found.after(message or "check_implementation refused it and did not say why"))
    verdict = compare(problem, expectations, outputs, names, partial)
    if verdict.passed:
        _remember(memory, outputs)
        return verdict
    from scoring.diagnosis import explain

    found = explain.explain(
        problem, case if case is not None else _case_of(problem, data), data, expectations, outputs, partial or names,
        memory.poisoned(), _LAST.get(memory.arena))
    return Verdict(verdict.status, found.after(verdict.message), verdict.wrong)


# Of the newest right answer in each arena: by them the same answer is known when it comes again.
_LAST: WeakKeyDictionary[Arena, list[torch.Tensor]] = WeakKeyDictionary()


def _remember(memory: SlotMemory, outputs: Sequence[torch.Tensor]) -> None:
    from scoring.diagnosis.relations import trace

    _LAST[memory.arena] = [trace(output) for output in outputs]


def _case_of(problem: Problem, data: Any) -> Mapping[str, Any]:
    """The case as far as the data tell."""
    case_of: Callable[[Any], Mapping[str, Any]] | None = getattr(problem.binding, "case_of", None)
    return case_of(data) if case_of is not None else {}


def compare(
    problem: Problem, expectations: Sequence[Any], outputs: Sequence[torch.Tensor], names: Sequence[str],
    partial: Sequence[str] = (),
) -> Verdict:
    """Compare outputs with expectations, one by one, by the problem's own comparison."""
    largest = 0.0
    for name, expectation, output in zip(names, expectations, outputs, strict=True):
        if partial and name not in partial:
            continue
        share, mismatch = problem.utils.examine(expectation, output)
        if mismatch is not None:
            wrong = tuple(_element(name, *element) for element in mismatch.elements)
            return Verdict(_STATUS.get(mismatch.kind, Status.INCORRECT_NUMERICAL), str(mismatch), wrong)
        largest = max(largest, share)
    return Verdict(Status.PASSED, f"largest error {largest:.0%} of its bound")


def _element(name: str, index: Sequence[int], got: float, expected: float, bound: float) -> dict[str, Any]:
    """A wrong element for the record. JSON has no NaN and no infinity, so these become words."""
    values = {"got": got, "expected": expected, "bound": bound}
    plain = {key: value if math.isfinite(value) else str(value) for key, value in values.items()}
    return {"output": name, "index": list(index), **plain}


# problems/utils.py cannot know our vocabulary (it is staged on a runner that has no scorer), so the words meet here.
_STATUS = {"shape": Status.INCORRECT_SHAPE, "dtype": Status.INCORRECT_DTYPE}
