# SPDX-License-Identifier: MIT
"""How the data and the outputs of a contest's problem lie in a slot, where no binding says so.

Outputs are laid out as the reference's are, until an answer of another shape or dtype comes: the contest's own check
says which answers are right, so there is no rule of ours. A claim of the worker's only says how the bytes of its answer
are to be read.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from scoring.ipc.template import Answer, TemplateError, UnsupportedData, describe_answer, describe_data
from scoring.judge import layout
from scoring.judge.budget import Budget
from scoring.judge.worker_process import WorkerFailure
from scoring.problem import ProblemError, ProblemNeeds
from scoring.record import Status

if TYPE_CHECKING:
    from scoring.judge.job import Limits
    from scoring.problem import Problem
    from scoring.record import Case

ANSWER_BYTES = 4 << 30          # of all tensors of one answer
NEW_TENSOR_SHARE = 8            # one tensor of a reference may take this part of the memory


class Contest:
    """The layouts of one case. ``ranks``: of a distributed task, whose data are a tuple with one item per rank."""

    def __init__(self, problem: Problem, case: Case, torch_device: str, limits: Limits | None = None):
        self.problem, self.case, self.limits = problem, case, limits
        self.on_cpu = torch_device == "cpu"
        self.ranks = problem.ranks(case)
        self._usual: dict[str, Answer] = {}       # by kind of data: what the reference returns
        self._learnt: dict[str, Answer] = {}      # what came instead

    def generate(self, seed: int, torch_device: str, fp8: str | None) -> Any:
        """Fresh data; raises ``TooLarge`` and what ``Problem.generate`` raises."""
        with self.budget():
            if not self.ranks:
                return self.problem.generate(self.case, seed, torch_device, fp8)
            return tuple(self.problem.generate(self.case, seed, torch_device, fp8, rank) for rank in range(self.ranks))

    @contextlib.contextmanager
    def budget(self) -> Iterator[None]:
        """Around the reference's work, which no deadline ends where it is done in this process by a CPU."""
        if not self.on_cpu or self.limits is None:
            yield
            return
        from scoring.sandbox.policy import physical_memory

        room = physical_memory() / NEW_TENSOR_SHARE
        with Budget(self.limits.reference_seconds, self.limits.reference_flops, room):
            yield

    def plan(self, data: Any) -> tuple[layout.SlotLayout, dict[str, torch.Tensor]]:
        """Placement of ``data`` and of the outputs it calls for."""
        template, tensors = describe_data(data, classes=self.problem.modules)
        kind = repr((template, [(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()]))
        answer = self._learnt.get(kind) or self._usual_answer(kind, data, tensors)
        outputs = {f"output{index}": each for index, each in enumerate(answer.tensors)}
        placed = layout.lay_out(tensors, outputs, template)
        return replace(placed, answer=answer, ranks=self.ranks, kind=kind), tensors

    def _usual_answer(self, kind: str, data: Any, tensors: Mapping[str, torch.Tensor]) -> Answer:
        """What the reference makes of a copy of the data, once per kind: the same shapes give the same shapes."""
        if kind not in self._usual:
            if self.ranks:                       # it would have to run in a group
                self._usual[kind] = Answer(["tuple", [["none", None]] * self.ranks], ())
                return self._usual[kind]
            with self.budget():
                result = self.problem.expected_output(_copy(data))
            try:
                self._usual[kind] = describe_answer(result)[0]
            except UnsupportedData as error:
                raise UnsupportedData(
                    f"ref_kernel returned something that is no tensor, nor tensors in a tuple, list or dict: {error}"
                ) from error
        return self._usual[kind]

    def learn(self, present: layout.SlotLayout, failure: WorkerFailure) -> bool:
        """Whether an answer of other shapes was claimed for the first time, so that there is room for it from now on.

        Raises ``WorkerFailure`` for a claim that cannot be met.
        """
        if not failure.alive or failure.answer is None or present.kind in self._learnt:
            return False
        try:
            answer = Answer.from_json(failure.answer, ANSWER_BYTES)
        except TemplateError as error:
            raise WorkerFailure(Status.INCORRECT_SHAPE, str(error), alive=True) from error
        if answer == present.answer:
            return False
        self._learnt[present.kind] = answer
        return True

    @contextlib.contextmanager
    def checking(self, present: layout.SlotLayout) -> Iterator[None]:
        """Around the contest's check. That it fails on an answer of other shapes than usual is the answer's fault.

        Raises ``WorkerFailure`` then.
        """
        try:
            with self.budget():
                yield
        except ProblemNeeds:
            raise
        except ProblemError as error:
            if present.kind not in self._learnt:
                raise
            text = f"the contest's check fails on this answer: {error}"
            raise WorkerFailure(Status.INCORRECT_SHAPE, text, alive=True) from error

    def note(self, kind: str) -> str:
        """How the answer differs in shape or dtype from the reference's, which the contest's check has accepted."""
        learnt, usual = self._learnt.get(kind), self._usual.get(kind)
        if learnt is None or usual is None or not usual.tensors or learnt.tensors == usual.tensors:
            return ""
        ours, theirs = (", ".join(f"{dtype}{list(shape)}" for shape, dtype in each.tensors[:4])
                        for each in (usual, learnt))
        return f"the answer is {theirs}, the reference's is {ours}, and the contest's check accepts that"


def _copy(data: Any) -> Any:
    """A deep copy; tensors keep their strides and forget their graphs."""
    memo: dict[int, Any] = {}

    def walk(value: Any, depth: int = 0) -> None:
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
            memo[id(value)] = value.detach().clone()
        elif isinstance(value, tuple | list | set) and depth < 8:
            for item in value:
                walk(item, depth + 1)
        elif isinstance(value, dict) and depth < 8:
            for item in value.values():
                walk(item, depth + 1)
        elif depth < 8 and hasattr(value, "__dict__") and not isinstance(value, type):
            walk(vars(value), depth + 1)

    walk(data)
    return copy.deepcopy(data, memo)
