# SPDX-License-Identifier: MIT
"""The red team's judging process: a judge like any other, apart from the suite because files may try to kill it.

``python -m tests.redteam.bench DEVICE [WEAKNESS]`` reads one request per line from stdin (JSON: path, problem, endless,
anew) and answers with one line. WEAKNESS makes it a judge that trusts too much, so that the suite itself can be tested.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import backends
from scoring.config.load import load_config
from scoring.judge import calibration
from scoring.judge.job import Job
from scoring.judge.score import score
from scoring.problem import Problem
from scoring.record import Mode, Record, Status
from scoring.run import targets
from scoring.run.job import make_submission_job

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLOPS = 0.3e9                # the largest case of fp8_gemm that a CPU is given
CUDA_CASES = 3               # tests and benchmarks each of fp8_gemm on a GPU
SHORT = {f"limits.{name}_seconds": 10.0 for name in ("load", "first_call", "call")}      # for what never ends
GRACE = 0.3                  # seconds for the processes of a closed worker to be gone


def main() -> None:
    """Answer until stdin ends."""
    device, weakness = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else "")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)      # PR_SET_CHILD_SUBREAPER: who outlives its worker becomes ours
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                                   # whatever is printed is no answer
    if weakness:
        from tests.redteam import weak

        weak.apply(weakness)
    for line in sys.stdin:
        answers.write(json.dumps(judge(device, **json.loads(line))) + "\n")
        answers.flush()


def judge(device: str, path: str, problem: str, endless: bool = False, anew: bool = False) -> dict[str, Any]:
    """One judgement as a plain dict: status, message, score in seconds, evidence, and the record as text.

    ``anew``: with its own calibration, not one that earlier judgements had as well.
    """
    started = time.monotonic()
    if anew:
        calibration.KNOWN = calibration.Known()
    with tempfile.TemporaryDirectory() as folder:
        record = score(job(device, Path(path), problem, Path(folder), SHORT if endless else {}))
    survivors = reap()
    return {
        "status": str(record.status), "message": record.message, "score": seconds(record),
        "isolation": record.isolation, "survivors": survivors, "seconds": time.monotonic() - started,
        "text": repr(record),
    }


def job(device: str, path: Path, name: str, staging: Path, values: Mapping[str, Any]) -> Job:
    """The judge's own job for a submission, with cases that suit the device."""
    backend_name = "cuda" if device == "cuda" else "cpu"
    settings = load_config(dict(values), str(HERE / "settings.yaml"), {})
    backend = backends.get(backend_name)
    place = targets.places(settings, backend, backend.probe(), None)[0]
    problem = Problem(problem_folder(name))
    cases = problem.cases
    if name == "fp8_gemm" and device == "cpu":
        cases = tuple(case for case in problem.tests if problem.binding.flops(case.params) <= FLOPS)[:2]
    elif name == "fp8_gemm":
        cases = problem.tests[:CUDA_CASES] + problem.benchmarks[1:1 + CUDA_CASES]
    folder = staging / "staged"
    folder.mkdir(mode=0o755)
    staging.chmod(0o755)             # a worker under another user must be able to read its file
    made = make_submission_job(
        settings, problem, place, path, folder, Mode.LEADERBOARD, cases, False)
    return replace(made, cases=tuple(cases))


def problem_folder(name: str) -> Path:
    """Ours, or the repository's own."""
    ours = HERE / "problems" / name
    return ours if ours.is_dir() else ROOT / "problems" / name


def seconds(record: Record) -> float | None:
    """Geometric mean of the medians of all timed cases; None unless it passed. (``Record.score`` wants all benchmarks
    of the problem, which is more than a CPU can do of fp8_gemm.)"""
    times = [case.stats.median for case in record.cases if case.stats is not None]
    if record.status is not Status.PASSED or not times:
        return None
    return math.exp(sum(map(math.log, times)) / len(times))


def reap() -> list[str]:
    """Kill what outlived its worker and say what it was."""
    time.sleep(GRACE)
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return found


def descendants(pid: int) -> list[int]:
    """Live processes below ``pid``; zombies are gone but for their name."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    found, newest = [], {pid}
    while newest:
        newest = {child for child, parent in parents.items() if parent in newest}
        found += sorted(newest)
    return found


if __name__ == "__main__":
    main()
