# SPDX-License-Identifier: MIT
"""Judges the red team's files by the scorer itself and says what became of each.

A judgement runs in a judging process of its own (``bench``), which a file may kill; honest submissions are judged alike
before and after it, so that a gain is told from the machine's mood.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.sandbox import isolation
from scoring.sandbox.devices import Nodes
from scoring.sandbox.policy import Policy, SandboxError
from tests.redteam import shell
from tests.redteam.canary import Canary
from tests.redteam.entries import GAIN, HERE, Entry, Outcome, Result, Trial, decide, wants_another

ROOT = HERE.parents[1]
DEADLINE = 200.0             # seconds of one judgement; then the judge counts as stopped by the file
FRESHNESS = 90.0             # seconds an honest time stands for the machine as it is
DOUBT = 1.1                  # nearer than this to a gain, honest times are taken anew on both sides


class Bench:
    """One judging process, started anew when a file has ended it."""

    def __init__(self, device: str, canary: Canary, weakness: str = ""):
        self.arguments = [device, *([weakness] if weakness else [])]
        self.canary = canary
        self.process: subprocess.Popen[bytes] | None = None

    def judge(self, path: Path, problem: str, endless: bool = False, anew: bool = False) -> dict[str, Any] | None:
        """The bench's answer; None if it died or stopped. ``anew``: on a calibration of its own."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.redteam.bench", *self.arguments], cwd=ROOT, start_new_session=True,
                env={**os.environ, **self.canary.environment, **_environment(self.arguments[0])},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = b""
        with contextlib.suppress(BrokenPipeError):
            request = {"path": str(path), "problem": problem, "endless": endless, "anew": anew}
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            line = _line(self.process.stdout.fileno(), DEADLINE)
        if not line.endswith(b"\n"):
            self.close()
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and all it started."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.process = None


def _environment(device: str) -> dict[str, str]:
    """One thread for every file alike; a CPU's judgement sees no GPU, where some problems would put their inputs."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return {"OMP_NUM_THREADS": "1", **hidden}


def _line(fd: int, seconds: float) -> bytes:
    """What can be read up to a newline in so many seconds."""
    deadline, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                break
            line += chunk
    return line


@dataclass
class _Honest:
    score: float
    taken: float
    isolation: str


class Suite:
    """Judges entries one after another on one device. Use as a context manager.

    ``honest`` may be shared by suites that take turns on their device: each judgement then has it alone, so that one
    suite's honest times are as good as another's.
    """

    def __init__(self, device: str = "cpu", weakness: str = "", honest: dict[str, _Honest] | None = None):
        self.device = device
        self.canary = Canary()
        self.bench = Bench(device, self.canary, weakness)
        self.isolation = "process"
        self._honest = {} if honest is None else honest

    def __enter__(self) -> Suite:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.bench.close()
        self.canary.__exit__()

    def run(self, entry: Entry) -> Result:
        """Judge one file, several times if it looks as if it gained."""
        if not entry.runs_on(self.device):
            return Result(entry, (), Outcome.NOT_RUN, f"it is for {entry.device}")
        if entry.device == "shell":
            return self._through_a_door(entry)
        self.honest(entry.problem)
        if entry.needs == "sandbox" and self.isolation == "process":
            return Result(entry, (), Outcome.NOT_RUN, "no sandbox here")
        trials = [self.trial(entry)]
        while wants_another(entry, trials):
            trials.append(self.trial(entry, anew=True))      # tries on one calibration gain or lose together
        return Result(entry, tuple(trials), decide(entry, trials))

    def _through_a_door(self, entry: Entry) -> Result:
        wanted = "landlock" if entry.needs == "landlock" else "auto"
        try:
            tier = isolation.choose(Policy(isolation=wanted), Nodes()).tier.name
        except SandboxError as error:
            return Result(entry, (), Outcome.NOT_RUN, str(error))
        if tier == "process" and entry.needs:
            return Result(entry, (), Outcome.NOT_RUN, "no sandbox here")
        trials = (shell.trial(entry),)
        return Result(entry, trials, decide(entry, trials))

    def trial(self, entry: Entry, anew: bool = False) -> Trial:
        """One judgement between two honest ones; the second is left out where it could not matter. ``anew``: on a
        calibration of its own, which the second honest one then has as well."""
        before = self.honest(entry.problem)
        self.canary.evidence("")
        answer = self.bench.judge(entry.path, entry.problem, entry.endless, anew)
        if answer is None:
            evidence = ("the judging process died or stopped", *self.canary.evidence(""))
            return Trial("NO ANSWER", evidence=() if entry.honest else evidence)
        evidence = (*self.canary.evidence(answer["text"]), *(f"outlived its worker: {p}" for p in answer["survivors"]))
        after, score = None, answer["score"]
        if score is not None and score < GAIN * DOUBT * before:
            after = self.honest(entry.problem, anew=True)
        return Trial(answer["status"], score, before, after, answer["message"], () if entry.honest else evidence,
                     answer["isolation"])

    def honest(self, problem: str, anew: bool = False) -> float:
        """Seconds of the problem's honest submission, not older than ``FRESHNESS``.

        Raises ``RuntimeError`` if it does not pass: then nothing can be judged.
        """
        known = self._honest.get(problem)
        if known is None or anew or time.monotonic() - known.taken > FRESHNESS:
            answer = self.bench.judge(HERE / "baselines" / f"{problem}.py", problem)
            if answer is None or answer["score"] is None:
                told = "no answer" if answer is None else f"{answer['status']}: {answer['message']}"
                raise RuntimeError(f"the honest submission of {problem} did not pass ({told})")
            known = self._honest[problem] = _Honest(answer["score"], time.monotonic(), answer["isolation"])
        self.isolation = known.isolation
        return known.score


def select_entries(entries: Iterable[Entry], device: str, pattern: str = "*") -> list[Entry]:
    """The entries for a device whose ``folder/name`` or class matches a pattern."""
    return [
        entry for entry in entries if entry.runs_on(device)
        and (fnmatch.fnmatch(entry.name, pattern) or fnmatch.fnmatch(entry.kind, pattern))
    ]


def run_all(
    entries: Sequence[Entry], device: str, jobs: int = 1, tell: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Judge all entries with ``jobs`` judging processes; results in the order of the entries."""
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    suites: SimpleQueue[Suite] = SimpleQueue()
    turns: dict[str, _Honest] | None = {} if device == "cuda" else None    # judgements take turns on a GPU

    def judge(entry: Entry) -> Result:
        suite = suites.get()
        try:
            result = suite.run(entry)
        finally:
            suites.put(suite)
        tell(result)
        return result

    with contextlib.ExitStack() as stack:
        for _index in range(jobs):
            suites.put(stack.enter_context(Suite(device, honest=turns)))
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, entries))
