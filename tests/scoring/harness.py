# SPDX-License-Identifier: MIT
"""What several tests of the scorer share: the toy problem, processes and descriptors of ours, the command line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backends
from scoring.config.load import Config, load_config
from scoring.ipc.requests import Request
from scoring.judge.job import Job
from scoring.problem import Problem
from scoring.record import Case, Mode
from scoring.run import targets
from scoring.run.job import make_kernel_job, make_submission_job
from scoring.sandbox import cleanup
from scoring.sandbox.environment import MARK

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SETTINGS = DATA / "config.yaml"


def descriptors() -> set[str]:
    """Open descriptors of this process, with what they are, so that a leak can be named."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{path.name} -> {path.readlink()}")
        except FileNotFoundError:       # the one that reads the folder
            continue
    return found


def alive(pid: int) -> bool:
    """Whether the process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def workers(judge: int) -> list[int]:
    """Live processes of the workers of a judge, and of what those started."""
    return [pid for pid, mark in cleanup.marks() if mark.startswith(f"{MARK}={judge}-".encode()) and alive(pid)]


def touched(judge: int, name: str) -> bool:
    """Whether a worker of that judge has made a file of this name in its temporary folder, wherever that lies."""
    for pid in workers(judge):
        with contextlib.suppress(OSError):
            entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            # Linux shows no environment of a process that is just calling exec or exiting.
            folders = [entry.partition("=")[2] for entry in entries if entry.startswith("TMPDIR=")]
            if any(Path(f"/proc/{pid}/root{folder}/{name}").exists() for folder in folders):
                return True
    return False


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Poll ``condition``; False if it did not come true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def left_open(before: set[str]) -> set[str]:
    """Descriptors that were not open ``before`` and stay open: those who watch folders open one for a moment."""
    left = descriptors() - before
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = descriptors() - before
    return left


def start(arguments: list[str], environment: Mapping[str, str], **options: object) -> subprocess.Popen[str]:
    """``python -m scoring …`` in the background, minding signals even if whoever runs the tests was started without."""
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "scoring", *arguments], cwd=ROOT, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=default_signals, **options)


def default_signals() -> None:
    """A shell's background jobs, and what nohup starts, inherit these ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def scoring(
    arguments: list[str], environment: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """``python -m scoring …`` to its end; a traceback on stderr is a failure whatever the test asks."""
    done = subprocess.run([sys.executable, "-m", "scoring", *arguments], cwd=ROOT, env={**os.environ, **environment},
                          text=True, capture_output=True, timeout=timeout, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def toy(cache: Path, **flags: Any) -> Config:
    """Settings of the tests' own problem; dotted names have two underscores for a dot."""
    values = {name.replace("__", "."): value for name, value in flags.items()}
    return load_config({"paths.cache": str(cache), **values}, str(SETTINGS), {})


def problem(settings: Config) -> Problem:
    (found,) = targets.select_problems(settings, ["toy"])
    return found


def kernel_job(settings: Config, name: str, cases: Sequence[Case] | None = None, mode: Mode = Mode.TEST) -> Job:
    """The job of one toy kernel on the CPU; raises what compiling raises."""
    backend = backends.get("cpu")
    (candidate,) = targets.candidates(settings, [problem(settings)], {"cpu": backend.probe()}, [name], None)
    chosen = candidate.problem.cases if cases is None else cases
    return make_kernel_job(settings, candidate, mode, chosen, False)


def submission_job(
    settings: Config, path: Path, staging: Path, cases: Sequence[Case] | None = None, mode: Mode = Mode.TEST,
    task: Path | None = None,
) -> Job:
    """The job of a submission on the CPU."""
    backend = backends.get("cpu")
    (place,) = targets.places(settings, backend, backend.probe(), None)
    chosen = Problem(task) if task else problem(settings)
    selected = chosen.cases if cases is None else cases
    staging.mkdir(exist_ok=True)
    return make_submission_job(settings, chosen, place, path, staging, mode, selected, False)


@dataclass(frozen=True)
class Work(Request):
    """A request that real workers do not know; fake ones answer it by misbehaving."""

    value: Any = None
