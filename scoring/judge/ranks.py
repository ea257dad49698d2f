# SPDX-License-Identifier: MIT
"""The check of a distributed task: the contest's own, once per rank, in one process group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scoring.ipc.group import GroupError, in_every_rank, moved, of_rank

if TYPE_CHECKING:
    from scoring.problem import Problem


def check_ranks(problem: Problem, data: Sequence[Any], outputs: Sequence[Any]) -> tuple[bool, str]:
    """Whether every rank's output is right, and the first rank's reason if not.

    Raises ``ProblemError`` if the check itself fails, ``ProblemNeeds`` if there can be no group here.
    """
    from scoring.problem import ProblemError, ProblemNeeds

    gpus = problem.ranks_have_gpus

    def check(rank: int) -> Any:
        ours, theirs = data[rank], outputs[rank]
        if gpus:
            problem.stand_in = None          # in this process: cuda means the GPU again
            device = of_rank(rank, gpus)
            with problem.installed():
                ours, theirs = moved(ours, device, problem.modules), moved(theirs, device)
        try:
            return list(problem.check(ours, theirs))
        except ProblemError as error:
            return ["error", str(error)]

    try:
        answers = in_every_rank(len(data), check, gpus)
    except GroupError as error:
        kind = ProblemNeeds if error.impossible else ProblemError
        raise kind(f"{problem.path}: its check needs ranks in a group: {error}") from error
    for rank, (good, message) in enumerate(answers):
        if good == "error":
            raise ProblemError(message)
        if not good:
            return False, f"rank {rank}: {message or 'check_implementation refused it and did not say why'}"
    return True, ""
