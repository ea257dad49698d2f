# SPDX-License-Identifier: MIT
"""A first look: what ``run`` does if nothing is selected, so that a new machine has an answer within a minute or two.

It runs the problems of ``first_look`` in the settings, on the devices that are here. On slow devices it leaves out the
tests that take seconds each. ``run --all`` leaves out nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from scoring.config.load import Config
from scoring.ipc.emulator import EMULATED
from scoring.judge.job import Job
from scoring.output import units
from scoring.problem import Problem
from scoring.run.job import runner_of
from scoring.run.targets import Candidate

# The largest test, in FLOP and bytes. Inputs and reference of a case take longer than the call itself.
LARGEST = {"cpu": (0.06e9, 2e6), EMULATED: (0.3e9, 5e6)}
WHY = "too large for a first look (run --all has them)"
_SELECTING = ("backend", "problem", "kernel", "gpu", "arch", "define", "case", "submission", "task", "against", "mode",
              "peers", "all")


def is_wanted(settings: Config, options: argparse.Namespace) -> bool:
    """Whether neither flags nor settings select anything."""
    chosen = any(getattr(options, name, None) for name in _SELECTING)
    origins = (settings.origins.get(name) for name in ("problems", "kernels", "backends", "gpus", "mode"))
    return options.verb == "run" and not chosen and all(origin == "default" for origin in origins)


def problems_of(settings: Config, found: Sequence[Problem]) -> list[Problem]:
    """Those of the problems ``found`` that the settings name; all where they name none of them."""
    return [problem for problem in found if problem.name in settings.settings.first_look] or list(found)


def limited(job: Job, candidate: Candidate) -> Job:
    """The job without the tests that take long on a slow device, timed in one process: the first answer is to come
    soon. Its interval knows nothing of other processes."""
    if runner_of(candidate.place) not in LARGEST or not job.small:
        return job
    flops, nbytes = LARGEST[runner_of(candidate.place)]
    return replace(
        job, limits=replace(job.limits, test_flops=flops, test_bytes=nbytes, too_large=WHY),
        timing=replace(job.timing, processes=1))


def left_out(idle: Sequence[Candidate], others: int) -> str:
    """What a first look did not run, in one line: ``idle`` has no device, ``others`` counts problems."""
    targets = Counter(candidate.place.target.gpu for candidate in idle)
    absent = ", ".join(f"{gpu} ({count})" for gpu, count in targets.items())
    told = [f"kernels for {absent}"] if absent else []
    told += [units.plural(others, "other problem")] if others else []
    return f"not run here: {'; '.join([*told, 'large tests'])}"
