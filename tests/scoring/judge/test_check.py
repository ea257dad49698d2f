# SPDX-License-Identifier: MIT
"""scoring/judge/check.py: the order of its questions, and what it calls each mistake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scoring.judge import check
from scoring.record import Status
from tests.problems.folders import problem

NAMES = ("o", "lse")
UTILS = problem("flash_attention").utils


class Arena:
    """Something that can be weakly referenced."""


class Memory:
    """What ``verify`` asks of a slot: two outputs, of which ``given`` is what a kernel left there."""

    def __init__(self, *given: torch.Tensor, damage: str = "", ours: bool = True):
        self.arena, self.told, self.ours = Arena(), damage, ours
        self.given = list(given)
        self.layout = SimpleNamespace(outputs=[SimpleNamespace(name=name) for name in NAMES], answer=None, ranks=0)

    def damage(self, inputs: bool = True) -> str:
        assert inputs == self.ours           # a foreign problem's data may hold the output
        return self.told

    def outputs(self) -> list[torch.Tensor]:
        return self.given

    def poisoned(self) -> list[torch.Tensor]:
        return [torch.full_like(x, torch.nan) for x in self.given]


def expected() -> list[Any]:
    return [UTILS.Expectation(name, torch.ones(3, 4), torch.full((3, 4), bound), torch.float32, (3, 4))
            for name, bound in zip(NAMES, (0.5, 0.25), strict=True)]


def judged(*given: torch.Tensor, partial: tuple[str, ...] = (), damage: str = "") -> check.Verdict:
    toy = SimpleNamespace(utils=UTILS, binding=SimpleNamespace(), mutants=None, path=None, name="toy")
    return check.verify(toy, Memory(*given, damage=damage), None, expected(), partial)      # type: ignore[arg-type]


RIGHT = torch.full((3, 4), 1.125)


def test_right_outputs_pass_and_the_largest_share_is_told() -> None:
    verdict = judged(RIGHT, RIGHT)
    assert verdict.passed
    assert verdict.message == "largest error 50% of its bound"
    assert judged(torch.full((3, 4), 1.45), RIGHT).message == "largest error 90% of its bound"


@pytest.mark.parametrize(("given", "status"), [
    ((RIGHT + 1, RIGHT), Status.INCORRECT_NUMERICAL), ((RIGHT, RIGHT + 1), Status.INCORRECT_NUMERICAL),
    ((RIGHT[:2], RIGHT), Status.INCORRECT_SHAPE), ((RIGHT, RIGHT.double()), Status.INCORRECT_DTYPE),
    ((RIGHT * torch.nan, RIGHT), Status.INCORRECT_NUMERICAL),
])
def test_each_output_can_be_wrong_in_its_own_way(given: Any, status: Status) -> None:
    verdict = judged(*given)
    assert verdict.status is status
    assert not verdict.passed


def test_damage_comes_first() -> None:
    verdict = judged(RIGHT + 1, RIGHT, damage="input q was modified")
    assert verdict == check.Verdict(Status.MUTATED_INPUT, "input q was modified")


def test_of_a_peer_only_what_it_promises_is_compared() -> None:
    assert judged(RIGHT, RIGHT + 1, partial=("o",)).passed
    assert judged(RIGHT + 1, RIGHT, partial=("lse",)).passed
    assert not judged(RIGHT + 1, RIGHT, partial=("o",)).passed


@pytest.mark.parametrize("good", [True, False])
def test_a_foreign_problem_judges_itself(good: bool) -> None:
    foreign = SimpleNamespace(
        check=lambda data, result: (good, "so it says"), expected_output=lambda data: (RIGHT, RIGHT), utils=UTILS,
        binding=SimpleNamespace())
    verdict = check.verify(foreign, Memory(RIGHT, RIGHT, ours=False), None, None)       # type: ignore[arg-type]
    assert verdict.passed == good
    assert verdict.message.startswith("so it says")
