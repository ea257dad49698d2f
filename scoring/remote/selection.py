# SPDX-License-Identifier: MIT
"""What a command line selects for another machine."""

from __future__ import annotations

import argparse
from pathlib import Path

import backends
from scoring.config.load import Config
from scoring.problem import Problem
from scoring.remote.bundle import Selection
from scoring.run import targets
from scoring.run.plan import submission_problem
from scoring.run.select import SelectionError


def selection_of(config: Config, options: argparse.Namespace) -> Selection:
    """What ``options`` of ``run`` select. Raises ``SelectionError`` and ``ProblemError``."""
    arguments: list[str] = []
    for flag, value in (("--gpu", options.gpu), ("--arch", options.arch)):
        arguments += [flag, value] if value else []
    for name, value in options.define or ():
        arguments += ["-D", f"{name}={value}"]
    for pattern in options.case or ():
        arguments += ["--case", pattern]
    if options.submission:
        path = Path(options.submission)
        problem = submission_problem(config, options, path)
        return Selection((problem,), tuple(arguments), path, Path(options.task) if options.task else None,
                         tuple(options.against or ()))
    problems = [each for each in targets.select_problems(config, config.settings.problems) if each.native]
    problems = [each for each in problems if _has_kernels(config, each)]
    if not problems:
        raise SelectionError("no selected problem has a kernel that is selected; `python -m scoring list` shows all")
    return Selection(tuple(problems), tuple(arguments), against=tuple(options.against or ()))


def _has_kernels(config: Config, problem: Problem) -> bool:
    return any(targets.select_kernels(config, problem, backends.get(name), config.settings.kernels)
               for name in config.settings.backends)

