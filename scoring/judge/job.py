# SPDX-License-Identifier: MIT
"""What is to be judged: one kernel or submission on one target, with its cases, limits and surroundings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import backends
from scoring.ipc.emulator import EMULATED
from scoring.ipc.requests import LoadChain, LoadEmulator, LoadSpec, NativeSpec, PythonSpec
from scoring.judge import timing
from scoring.record import NOT_ASKED, Case, Mode, Record, Status
from scoring.sandbox.policy import Policy

if TYPE_CHECKING:
    from backends.base import Backend, Binary, Device, Target
    from scoring.problem import Problem


@dataclass(frozen=True)
class Contestant:
    """Something a worker can load and call under a name: the code under test, or a peer."""

    name: str
    spec: LoadSpec

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, kind) of the C prototype, which the judge binds; none for a Python file."""
        return self.spec.parameters if isinstance(self.spec, NativeSpec) else ()

    @property
    def partial(self) -> tuple[str, ...]:
        """The outputs a peer promises; all if empty."""
        return self.spec.partial if isinstance(self.spec, PythonSpec) else ()


@dataclass(frozen=True)
class Entrant:
    """A rival of a job. ``contestant`` is None where there is nothing to load, as ``message`` says."""

    name: str
    digest: str = ""
    contestant: Contestant | None = None
    status: Status = Status.PASSED
    message: str = ""


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, and the largest case to run, in FLOP and for tests in bytes as well; ``too_large`` says
    where the limit comes from.

    ``reference_seconds`` and ``reference_flops`` hold for a contest's reference on a CPU, which runs in the judge.
    """

    load_seconds: float = 300.0
    first_call_seconds: float = 90.0
    call_seconds: float = 20.0
    job_seconds: float = 3600.0
    case_flops: float = math.inf
    test_flops: float = math.inf
    test_bytes: float = math.inf
    too_large: str = "too large"
    reference_seconds: float = 60.0
    reference_flops: float = 2e12


class Listener:
    """Hears what happens while a job is judged; this one does nothing."""

    def progress(self, text: str) -> None:
        """What happens from now on, in words."""

    def judged(self, record: Record) -> None:
        """What is judged so far, after every case but the last; ``record`` says which cases are left."""


@dataclass(frozen=True)
class Job:
    """Everything ``score`` needs. ``contestant`` and ``device`` are None for what can only be compiled here."""

    problem: Problem
    target: Target
    kernel: str
    digest: str
    mode: Mode
    contestant: Contestant | None = None
    device: Device | None = None
    binary: Binary | None = None
    peers: tuple[Contestant, ...] = ()
    rivals: tuple[Entrant, ...] = ()         # that race the contestant in timed cases
    cases: tuple[Case, ...] = ()
    seed: int | None = None
    limits: Limits = field(default_factory=Limits)
    sandbox: Policy = field(default_factory=Policy)
    timing: timing.TimingOptions = field(default_factory=timing.TimingOptions)
    emulator: LoadEmulator | None = None            # of an emulated device
    chain: LoadChain | None = None                  # the commit chain's library, where something is timed
    earlier: Record | None = None    # of a run that ended early (``resumable``): what passed there is not judged again
    reason: str = ""                 # why it cannot run here
    stand_in: bool = False           # a GPU's code on the CPU, where cuda means the CPU: nothing is timed
    gpus: int = 0                    # of a distributed task: how many its ranks have, one each; nothing is timed
    sanitizers: tuple[str, ...] = ()     # tools of compute-sanitizer that look at one more call of every case

    @property
    def backend(self) -> Backend:
        """The vendor of its target, with whatever it says about itself."""
        return backends.get(self.target.backend)

    @property
    def torch_device(self) -> str:
        """Where judge and worker keep tensors: an emulated device's memory is the host's, and ranks copy from there."""
        if self.device is None or self.device.emulated or self.backend.on_host or self.gpus:
            return "cpu"
        return f"cuda:{self.device.index}"

    @property
    def small(self) -> tuple[Case, ...]:
        """The benchmark cases that the problem has for this device alone, because it is slow."""
        return self.problem.small.get(EMULATED if self.emulator is not None else self.target.backend, ())

    @property
    def processes(self) -> int:
        """How many fresh processes time every contestant; one for modelled times, which are the same in all."""
        if self.emulator is not None:
            return 1
        return self.timing.processes if self.torch_device == "cpu" else self.timing.gpu_processes

    @property
    def slot_memory(self) -> int:
        """Bytes all slots of a case may take: the judge holds a private copy and references besides."""
        if self.torch_device == "cpu" or self.device is None or not self.device.memory_bytes:
            return 1 << 30
        return self.device.memory_bytes // 6

    def work(self, case: Case) -> tuple[float, float, str]:
        """FLOP, bytes and the peak they are held against; zeros for a problem that does not say."""
        if not self.problem.native:
            return 0.0, 0.0, ""
        flops, nbytes, peak = (self.problem.bound(name, case.params) for name in ("flops", "bytes_moved", "PEAK"))
        return float(flops), float(nbytes), str(peak)

    def roofline(self, case: Case) -> tuple[float | None, str]:
        """Seconds below which no kernel can be, and what bounds it (``timing.roofline``)."""
        flops, nbytes, peak = self.work(case)
        return timing.roofline(flops, nbytes, self.target.peaks.get(peak), self.target.peaks.get("bytes"))

    def telemetry(self) -> Mapping[str, Any]:
        """Clocks, power and throttle reasons of the device now; empty where nothing tells."""
        return backends.get(self.target.backend).telemetry(self.device) if self.device is not None else {}

    def compiled_only(self) -> Job:
        """The same job without anything to run: what ``build`` shows."""
        return replace(self, contestant=None, device=None, reason=self.reason or NOT_ASKED)
