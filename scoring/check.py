# SPDX-License-Identifier: MIT
"""What a correct run is: nothing written outside the outputs, inputs untouched, every output within its bound.

The numbers behind a bound belong to the problem (``reference.expected``); the order of the questions belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scoring.model import Status

if TYPE_CHECKING:
    import torch

    from scoring.layout import SlotMemory
    from scoring.problem import Problem


@dataclass(frozen=True)
class Verdict:
    """PASSED, or the first thing found wrong and a sentence a person can act on."""

    status: Status
    message: str = ""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


def verify(
    problem: Problem, memory: SlotMemory, data: Any, expectations: Sequence[Any] | None, partial: Sequence[str] = (),
    outputs: Sequence[torch.Tensor] | None = None,
) -> Verdict:
    """Judge what one call left in ``memory``; ``outputs`` are private copies of its outputs, if there are some already.

    ``data`` is the judge's private copy of the inputs, ``expectations`` what ``reference.expected`` made of it (None
    for a problem that only has ``check_implementation``). ``partial`` names the outputs a peer promises; all if empty.
    """
    damage = memory.damage(inputs=expectations is not None)
    if damage:
        return Verdict(Status.MUTATED_INPUT, damage)
    outputs = memory.outputs() if outputs is None else outputs
    if expectations is None:
        result: Any = outputs[0] if len(outputs) == 1 else tuple(outputs)
        good, message = problem.check(data, result)
        return Verdict(Status.PASSED if good else Status.INCORRECT_NUMERICAL, message)
    return compare(problem, expectations, outputs, [spec.name for spec in memory.layout.outputs], partial)


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
            return Verdict(_STATUS.get(mismatch.kind, Status.INCORRECT_NUMERICAL), str(mismatch))
        largest = max(largest, share)
    return Verdict(Status.PASSED, f"largest error {largest:.0%} of its bound")


# problems/utils.py cannot know our vocabulary (it is staged on a runner that has no scorer), so the words meet here.
_STATUS = {"shape": Status.INCORRECT_SHAPE, "dtype": Status.INCORRECT_DTYPE}
