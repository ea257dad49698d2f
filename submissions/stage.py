# SPDX-License-Identifier: MIT
"""Runs a submission as GPU MODE's runner does: a folder with the task's files, a case file, one process, one pipe.

The pipe and both outputs are drained while the evaluator runs, so no amount of text blocks it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from scoring.ipc import absent
from scoring.output import units
from scoring.popcorn.cases import write_cases
from scoring.popcorn.report import PopcornExit, Report, ReportError, exit_code, parse_entries, parse_report
from scoring.popcorn.task import SUBMISSION, Task, load_task
from scoring.record import ExitCode

EVALUATOR = Path(__file__).with_name("eval.py")
OUTPUT_LIMIT = 16_384          # bytes of stdout and stderr that are kept, as on the server
RESULT_LIMIT = 16 << 20        # bytes of result lines that are kept
BUILD_SECONDS = 120.0          # for the run that only compiles, as on the server
TAIL_BYTES = 4096
TAIL_LINES = 20                # of stderr, shown of a run that failed
_CASE_FILE = "cases.txt"


class StageError(Exception):
    """A problem folder or a submission that cannot be staged; the message names the file."""


@dataclass(frozen=True)
class Outcome:
    """One evaluator run. ``code`` is its exit code, negative for a signal and 114 for a timeout."""

    mode: str
    code: int
    seconds: float
    stdout: str
    stderr: str
    entries: Mapping[str, str] = field(default_factory=dict)
    report: Report = field(default_factory=lambda: Report(False))
    problem: str = ""          # why the result lines are not a valid report; "" if they are
    tail: str = ""             # the last bytes of stderr, or of stdout if there is none

    @property
    def absent(self) -> str:
        """The package or GPU that the evaluator lacked here, by what it printed; "" if it passed or lacked none."""
        said = (self.tail, self.report.error, *(case.text for case in (*self.report.tests, *self.report.benchmarks)))
        return "" if self.passed else absent.anything("\n".join(said))

    @property
    def passed(self) -> bool:
        return self.code == PopcornExit.OK and self.report.passed

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.UNAVAILABLE if self.absent else exit_code(self.code, self.report.passed)


def stage(folder: Path, submission: Path, workdir: Path, ours: bool = False) -> Task:
    """Write the files of the problem ``folder`` into ``workdir``, ``@SUBMISSION@`` replaced by the file ``submission``.

    The evaluator is the task's own. Ours is used if the task has none, or with ``ours``.
    Raises ``TaskError`` for a broken task.yml and ``StageError`` for a missing file.
    """
    task = load_task(folder)
    if task.lang != "py":
        raise StageError(f"{task.path}: lang: {task.lang} tasks are compiled by the runner; only py tasks run here")
    home = task.path.parent
    for name, source in task.files:
        if name == task.main and ours:
            continue
        origin = submission if source == SUBMISSION else home / source
        if not origin.is_file():
            if name == task.main:
                continue       # ours then, below
            raise StageError(f"{task.path}: files: {name}: {origin} is not a file")
        shutil.copyfile(origin, workdir / name)
    if not (workdir / task.main).exists():
        shutil.copyfile(EVALUATOR, workdir / task.main)
    return task


def evaluate(
    folder: Path, submission: Path, mode: str, seed: int | None = None, timeout: float | None = None,
    ours: bool = False,
) -> list[Outcome]:
    """Stage and run: one outcome, or for ``leaderboard`` up to three (test, benchmark, leaderboard), as on the server.

    ``seed`` is the secret one; ``timeout`` (seconds per run) overrides the task's. Raises as ``stage``.
    """
    modes = ("test", "benchmark", "leaderboard") if mode == "leaderboard" else (mode,)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="warpwave-eval-") as name:
        workdir = Path(name)
        task = stage(folder, submission, workdir, ours)
        build(workdir, task)
        for step in modes:
            text = write_cases(task.cases(step), step, task.ranking_by)
            (workdir / _CASE_FILE).write_text(text, encoding="utf-8")
            outcomes.append(run(workdir, task.main, step, timeout or task.timeout(step), seed))
            if not outcomes[-1].passed:
                break
    return outcomes


def build(workdir: Path, task: Task, timeout: float = BUILD_SECONDS) -> None:
    """Run the submission once on its own, as the server does, so that it compiles before any clock of the task runs.

    The result is ignored: a submission that fails here fails again in the evaluator, which reports it.
    """
    name = next(file.name for file in task.files if file.source == SUBMISSION)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POPCORN_")}
    process = subprocess.Popen([sys.executable, name], cwd=workdir, env=environment, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
    _end_session(process)


def run(workdir: Path, main: str, mode: str, timeout: float, seed: int | None = None) -> Outcome:
    """Run the staged evaluator once. It and everything it started are gone when this returns."""
    read_end, write_end = os.pipe()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POPCORN_")}
    environment |= {"POPCORN_FD": str(write_end)} | ({} if seed is None else {"POPCORN_SEED": str(seed)})
    # Timing gets what the checks, compiling and importing leave of the limit.
    environment.setdefault("WARPWAVE_EVAL_SECONDS", str(timeout * 0.5))
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, main, mode, _CASE_FILE], cwd=workdir, env=environment, pass_fds=(write_end,),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    os.close(write_end)
    assert process.stdout is not None
    assert process.stderr is not None
    drains = [Drain(os.fdopen(read_end, "rb"), RESULT_LIMIT), Drain(process.stdout, OUTPUT_LIMIT),
              Drain(process.stderr, OUTPUT_LIMIT)]
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        code = int(PopcornExit.TIMEOUT)
    finally:
        _end_session(process)
    seconds = time.monotonic() - started
    results, stdout, stderr = (drain.text() for drain in drains)
    tail = drains[2].tail() or drains[1].tail()
    entries = parse_entries(results)
    late = f"not done after {timeout:g} s" if code == PopcornExit.TIMEOUT else ""
    try:
        return Outcome(mode, code, seconds, stdout, stderr, entries, parse_report(entries), late, tail)
    except ReportError as error:
        return Outcome(mode, code, seconds, stdout, stderr, entries, problem=late or str(error), tail=tail)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own session, and everything that it started in that session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Drain:
    """Reads a pipe to its end on a thread and keeps the first ``limit`` bytes, and the last few."""

    def __init__(self, source: IO[bytes], limit: int):
        self._source = source
        self._limit = limit
        self._kept, self._last = bytearray(), bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._source, contextlib.suppress(OSError):
            for chunk in iter(lambda: os.read(self._source.fileno(), 1 << 16), b""):
                self._kept += chunk[: max(0, self._limit - len(self._kept))]
                self._last += chunk
                del self._last[:-TAIL_BYTES]

    def tail(self) -> str:
        """The end of the text; to be asked after ``text``."""
        return bytes(self._last).decode(errors="replace")

    def text(self, patience: float = 5.0) -> str:
        """The kept text, cut at the end of a line if cut. Does not wait for a writer that outlives its session."""
        self._thread.join(patience)
        data = bytes(self._kept)
        if len(data) >= self._limit:
            data = data[: data.rfind(b"\n") + 1] or data
        return data.decode(errors="replace")


def describe(outcome: Outcome) -> Iterator[str]:
    """The outcome as lines for a terminal; times in microseconds."""
    verdict = "passed" if outcome.passed else "FAILED"
    yield f"{outcome.mode}: {verdict} (exit code {outcome.code}, {outcome.seconds:.1f} s)"
    if outcome.problem:
        yield f"  {outcome.problem}"
    if not outcome.passed:
        yield from (f"  {line}" for line in outcome.report.error.splitlines())
    cases = (*outcome.report.tests, *outcome.report.benchmarks)
    for case in (case for case in cases if case.spec or case.text or case.timing):
        line = f"  {'pass' if case.passed else 'FAIL'}  {case.spec}"
        if case.timing:
            line += f"  {case.timing.mean * 1e6:.2f} ± {case.timing.err * 1e6:.2f} µs, {case.timing.runs} runs"
        yield line
        yield from case.profile.splitlines()
        if case.text:
            yield from (f"        {text}" for text in case.text.splitlines())
    if silent := sum(not (case.spec or case.text or case.timing) for case in cases):
        yield f"        and {units.plural(silent, 'case')} that nothing was said about"
    if outcome.passed:
        return
    told = {line.strip() for case in cases for line in case.text.splitlines()}
    tail = [line for line in outcome.tail.splitlines() if line.strip()]
    if tail and tail[-1].strip() not in told:
        yield f"  the last lines of {'stderr' if outcome.stderr else 'stdout'}:"
        yield from (f"    {line}" for line in tail[-TAIL_LINES:])
    if outcome.absent:
        yield (f"  this evaluator needs {outcome.absent}; `python -m scoring run --task DIR --submission FILE` judges "
               "what the CPU can do")
