# SPDX-License-Identifier: MIT
"""Does the check refuse wrong answers? Tried on every case with every mutant a problem knows.

A tolerance that lets zeros, a uniform softmax or half of the work pass makes a leaderboard worthless, and nobody
notices, since honest kernels pass as well. So for each case this makes inputs, computes the expectation (of a sample
of the rows: the same code as in scoring), and puts before the scorer's own comparison first the right answer, which
must pass, and then each wrong one, which must not. It runs on a laptop: nothing is launched, only references computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scoring.judge import check, problem_files
from scoring.record import Case

if TYPE_CHECKING:
    from scoring.problem import Problem

HONEST = "honest"

# Useful FLOP of a case beyond which a quarter of the sample is taken: a row costs more, and there are enough of them.
LARGE_CASE = 2e10
SMALLEST_SAMPLE = 32


@dataclass(frozen=True)
class AuditRow:
    """What the check said to one answer of one case. ``mutant`` is ``HONEST`` for the right answer."""

    problem: str
    case: str
    mutant: str
    refused: bool
    detail: str

    @property
    def good(self) -> bool:
        """Whether the check did its duty: refused a wrong answer, passed the right one."""
        return self.refused == (self.mutant != HONEST)


def audit(
    problems: Iterable[Problem], select: Callable[[Case], bool] | None = None, device: str | None = None,
    sample: int = 256, seed: int = 1, fp8: str | None = None, progress: Callable[[AuditRow], None] | None = None,
) -> list[AuditRow]:
    """Audit the ``select``-ed cases (default: tests and benchmarks) of every problem that has mutants.

    ``device`` None means a GPU if there is one, else the CPU. ``sample`` is about how many output rows of a case are
    looked at; ``progress`` is called with every row as it comes about.
    """
    rows = []
    for problem in problems:
        problem_files.check(problem)
        problem_files.check_mutants(problem)
        for case in problem.cases:
            if select is None or select(case):
                for row in audit_case(problem, case, device, sample, seed, fp8):
                    rows.append(row)
                    if progress is not None:
                        progress(row)
    return rows


def audit_case(
    problem: Problem, case: Case, device: str | None = None, sample: int = 256, seed: int = 1, fp8: str | None = None,
) -> Iterator[AuditRow]:
    """The right answer, then every mutant that applies to the case, in the order the problem lists them."""
    reference, params = problem.reference, case.params
    names = list(problem.bound("outputs", params))
    if problem.bound("flops", params) > LARGE_CASE:
        sample = max(SMALLEST_SAMPLE, sample // 4)
    data = _generate(problem, case, seed, device, fp8)
    problem_files.check_data(problem, params, data)
    expectations = problem.call(reference.expected, data, sample, seed=seed)
    problem_files.check_expectations(problem, params, expectations)
    index = expectations[0].index
    right = tuple(expectation.rounded() for expectation in expectations)

    def row(name: str, outputs: tuple[Any, ...]) -> AuditRow:
        verdict = check.compare(problem, expectations, outputs, names)
        return AuditRow(problem.name, case.name, name, not verdict.passed, verdict.message)

    yield row(HONEST, right)
    # Full-size buffers made once: a mutant overwrites the sampled elements, and no others are ever looked at.
    buffers = [output.clone() if index is not None else None for output in right]
    for name, mutant in problem.mutants.MUTANTS.items():
        if not problem.call(mutant.applies, params):
            continue
        if mutant.transform_data is not None:
            changed = problem.call(mutant.transform_data, params, data)
            wrong = problem.call(reference.expected, changed, index=index)
            outputs = tuple(part.rounded(buffer) for part, buffer in zip(wrong, buffers, strict=True))
        else:
            outputs = problem.call(mutant.transform_outputs, params, data, right)
        yield row(name, outputs)


def _generate(problem: Problem, case: Case, seed: int, device: str | None, fp8: str | None) -> Any:
    if device is None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return problem.generate(case, seed, device, fp8)
