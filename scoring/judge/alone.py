# SPDX-License-Identifier: MIT
"""One checked call outside of the judge's workers, in a process that a vendor's tool watches.

A sanitizer or a profiler gets between a process and its driver, which no sandbox of ours allows, so such a call runs as
the judge's user. It is for kernels of one's own: nothing it says ranks.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from backends import _process
from scoring.ipc import requests
from scoring.judge.case_run import WORKSPACE_GUARD, CaseRun
from scoring.judge.check import Verdict
from scoring.judge.job import Job
from scoring.judge.seeds import SeedSource
from scoring.judge.worker_process import WorkerProcess
from scoring.output.text import harmless
from scoring.record import Case, Status
from scoring.sandbox.policy import ROOT
from scoring.worker.alone import ANSWER, BLOCK, CALL, TRACE

KEPT = 1500              # characters of what a call printed that are told


@dataclass(frozen=True)
class Called:
    """How a call went: the judge's verdict, and what the tool left behind.

    ``returncode`` is the tool's, None where it was killed after its time; ``printed`` is what tool and call printed.
    ``folder`` holds the tool's files for as long as the case is prepared.
    """

    verdict: Verdict
    returncode: int | None
    printed: str
    folder: Path


@contextlib.contextmanager
def prepared(job: Job, case: Case, seeds: SeedSource) -> Iterator[Alone]:
    """A case with its inputs made, ready to be called any number of times. Raises what making inputs raises."""
    with tempfile.TemporaryDirectory(prefix="warpwave-alone-") as name:
        seat = _Seat()
        run = CaseRun.of(job, case, cast(WorkerProcess, seat), seeds)
        with run:
            run.add_slot()
            yield Alone(job, run, seat, Path(name))


class Alone:
    """A prepared case. ``program`` is what a tool has to watch."""

    def __init__(self, job: Job, run: CaseRun, seat: _Seat, folder: Path):
        self._job, self._run, self._seat, self.folder = job, run, seat, folder
        self.program = [sys.executable, "-P", "-m", "scoring.worker.alone", str(folder)]

    @property
    def trace(self) -> Path:
        """Where the call leaves torch's own trace, if it is asked for one."""
        return self.folder / TRACE

    def call(
        self, command: Callable[[Sequence[str]], Sequence[str]], seconds: float, fill: bool = True, trace: bool = False,
    ) -> Called:
        """Run what ``command`` makes of the program, at most so many ``seconds``, and check what the call left.

        ``fill`` writes poison into the outputs before; without it they are memory that nobody has written.
        """
        run, slot = self._run, self._run.slots[0]
        assert self._job.contestant is not None
        slot.memory.fill(slot.memory.private)
        slot.memory.poison(True)
        run.sync()
        (self.folder / ANSWER).unlink(missing_ok=True)
        load = requests.encode(requests.Load(self._job.contestant.name, self._job.contestant.spec))
        on_device = self._job.torch_device.startswith("cuda")
        call: dict[str, Any] = {
            "load": load, "share": requests.encode(self._seat.share), "workspace": self._seat.workspace,
            "device": torch.device(self._job.torch_device).index or 0 if on_device else None, "fill": fill,
            "trace": trace}
        (self.folder / CALL).write_text(json.dumps(call))
        block = slot.memory.arena.block
        block.cpu().numpy().tofile(self.folder / BLOCK)
        done = _process.run(command(self.program), self.folder / "printed", self.folder, seconds, _environment())
        if done.returncode is None:
            verdict = Verdict(Status.TIMEOUT, f"no end within {seconds:g} s")
        elif not (self.folder / ANSWER).is_file():
            tail = harmless(done.output.strip()[-KEPT:])
            verdict = Verdict(Status.RUNTIME_ERROR, f"the call came to no end (exit code {done.returncode})"
                              + (f"; it printed last:\n{tail}" if tail else ""))
        else:
            verdict = self._judged(json.loads((self.folder / ANSWER).read_text()))
        return Called(verdict, done.returncode, done.output, self.folder)

    def _judged(self, answer: Mapping[str, Any]) -> Verdict:
        if not answer["ok"]:
            return Verdict(Status(answer["status"]), harmless(answer["error"]))
        run, slot = self._run, self._run.slots[0]
        size = (self.folder / BLOCK).stat().st_size
        slot.memory.arena.block.copy_(torch.from_file(str(self.folder / BLOCK), size=size, dtype=torch.uint8))
        return run.verify_slot(slot, run.contestant)


class _Seat:
    """Sits where a worker would and keeps what it is told about memory."""

    alive = True

    def __init__(self) -> None:
        self.share: requests.ShareSlot
        self.workspace = 0

    def request(self, request: requests.Request, timeout: float, fds: Sequence[int] = ()) -> dict[str, Any]:
        if isinstance(request, requests.ShareSlot):
            self.share = request
        elif isinstance(request, requests.ShareWorkspace):
            self.workspace = int(request.arena["nbytes"]) - WORKSPACE_GUARD
        return {}

    def close(self) -> None:
        """Nothing runs here."""


def _environment() -> dict[str, str]:
    # Memory that a submission allocates is then its own allocation, too, whose end a sanitizer knows.
    return {"PYTHONPATH": str(ROOT), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
