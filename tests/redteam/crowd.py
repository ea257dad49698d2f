# SPDX-License-Identifier: MIT
"""Judges that run side by side and are killed: each judgement is a process of its own, as ``scoring run`` is.

A quarter of the judges get SIGKILL at a moment drawn from the time that judgements take. No worker may outlive its
judge. What else a killed judge leaves (folders, control groups) the next one removes, as ``scoring run`` does when it
starts.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scoring.judge.score import score
from scoring.record import Mode, Status
from scoring.sandbox import cleanup
from scoring.sandbox.environment import MARK
from scoring.store.store import Store
from tests.redteam import bench

File = tuple[str, Path, tuple[Status, ...]]          # a name, the file, and what may become of it
CLEAN_EVERY = 20             # judgements, between two of which somebody starts a run
GRACE = 5.0                  # seconds for what a killed judge started to be gone
DEADLINE = 900.0             # seconds that one judgement may take here, whatever else the machine does


@dataclass
class Running:
    """A judge at work on the ``index``-th judgement; ``end`` is when it is to be killed, None if it may finish."""

    index: int
    name: str
    started: float
    end: float | None
    killed: bool = False


class Crowd:
    """Judges ``files`` in turn, ``jobs`` at a time, and kills one of ``share`` judges."""

    def __init__(self, files: Sequence[File], folder: Path, tmp: Path, jobs: int, share: int, device: str, mode: Mode):
        self.files, self.folder, self.tmp = files, folder, tmp
        self.jobs, self.share, self.device, self.mode = jobs, share, device, mode
        self.store = folder / "records.db"
        self.settings: dict[str, object] = {}
        self.random = random.Random(20261127)
        self.running: dict[int, Running] = {}
        self.judges: set[int] = set()
        self.seconds: list[float] = []           # that whole judgements took
        self.begun = 0
        self.killed = 0
        self.finished = 0
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []

    def judge(self, count: int, tell: Callable[[str], None], seconds: float = math.inf) -> None:
        """``count`` judgements, or as many as begin within ``seconds``."""
        started = time.monotonic()
        for index in range(count):
            if time.monotonic() - started > seconds:
                break
            while len(self.running) >= self.jobs:
                self._reap()
            if index % CLEAN_EVERY == 0:
                cleanup.clean()
            self._start(index)
            self.begun += 1
            if (index + 1) % 100 == 0:
                tell(f"{index + 1}: {self.killed} killed, {time.monotonic() - started:.0f} s")
        while self.running:
            self._reap()

    def _start(self, index: int) -> None:
        name, path, expected = self.files[index % len(self.files)]
        end = None
        if self.share and self.killed + self._doomed() < (index + 1) // self.share:
            typical = statistics.median(self.seconds) if self.seconds else 3.0
            end = time.monotonic() + self.random.uniform(0.02, 0.9) * typical
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os._exit(self._one(path, expected))
        self.judges.add(pid)
        self.running[pid] = Running(index, name, time.monotonic(), end)

    def _doomed(self) -> int:
        return sum(one.end is not None for one in self.running.values())

    def _one(self, path: Path, expected: tuple[Status, ...]) -> int:
        """A judgement in this process: 0 if it came out as ``expected``, else what was wrong stands in a file."""
        said = self.folder / f"wrong-{os.getpid()}"
        try:
            with tempfile.TemporaryDirectory(prefix=cleanup.folder_prefix(), dir=self.tmp) as staging:
                job = bench.job(self.device, path, "foreign", Path(staging), {**self.settings, "mode": self.mode})
                record = score(job)
            Store(self.store).add(record)
        except BaseException:                # noqa: BLE001 - whatever it was, the soak must hear of it
            said.write_text(traceback.format_exc())
            return 1
        if record.status not in expected:
            said.write_text(f"came out as {record.status}: {record.message[:300]}")
            return 1
        return 0

    def _reap(self) -> None:
        """Kill whoever's moment has come, and note who has ended."""
        for pid, one in self.running.items():
            overdue = time.monotonic() - one.started > DEADLINE
            if overdue or (one.end is not None and not one.killed and time.monotonic() > one.end):
                os.kill(pid, signal.SIGKILL)
                one.killed = True
                if overdue:
                    self.wrong.append(f"{one.index}: {one.name} took more than {DEADLINE:g} s")
        for pid in list(self.running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            one = self.running.pop(pid)
            if os.WIFSIGNALED(status) and one.killed:
                self.killed += 1
                self.found[f"{one.name}: judge killed"] += 1
                continue
            self.finished += 1
            self.seconds.append(time.monotonic() - one.started)
            self.found[f"{one.name}: {'as expected' if status == 0 else 'WRONG'}"] += 1
            if status != 0:
                said = self.folder / f"wrong-{pid}"
                self.wrong.append(f"{one.index}: {one.name}: {said.read_text() if said.exists() else status}")
        time.sleep(0.01)

    def left(self) -> list[str]:
        """What the judges have left behind: before the next one cleans up no process, afterwards nothing at all."""
        wrong, deadline = [], time.monotonic() + GRACE
        while (alive := self._workers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if alive:
            wrong.append(f"{len(alive)} processes of workers outlived their judges: {alive[:5]}")
        cleanup.clean()
        if files := sorted(path.name for path in self.tmp.iterdir()):
            wrong.append(f"{len(files)} files in the temporary folder: {files[:5]}")
        groups = [path.name for path in Path("/sys/fs/cgroup").glob("**/warpwave-*-*")
                  if any(path.name.startswith(f"warpwave-{pid}-") for pid in self.judges)]
        if groups:
            wrong.append(f"{len(groups)} control groups: {groups[:5]}")
        return wrong + self._records()

    def _workers(self) -> list[int]:
        ours = {f"{MARK}={pid}-".encode() for pid in self.judges}
        return [pid for pid, mark in cleanup.marks() if any(mark.startswith(start) for start in ours)]

    def _records(self) -> list[str]:
        """The store is intact, and has a whole record of every judgement that was not killed."""
        with contextlib.closing(sqlite3.connect(self.store)) as connection:
            (intact,) = connection.execute("PRAGMA integrity_check").fetchone()
        records = Store(self.store).records()            # reads every one of them
        if intact == "ok" and self.finished <= len(records) <= self.finished + self.killed:
            return []
        return [f"the store: {intact}, {len(records)} records of {self.finished} judgements"]
