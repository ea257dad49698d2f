# SPDX-License-Identifier: MIT
"""The settings and what each may be. Imports pydantic, so ``config.load`` imports this only when all are needed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, StrictInt, model_validator

import backends
from scoring.config.paths import PATHS
from scoring.ipc.emulator import EMULATED, parse_checks, parse_schedule
from scoring.judge import job
from scoring.judge.intervals import MOST_PROCESSES
from scoring.judge.timing import AskedProtocol, TimingOptions
from scoring.sandbox.policy import Isolation, Policy


def _backend(name: str) -> str:
    if name not in backends.names():
        raise ValueError(f"no such backend; there are: {', '.join(backends.names())}")
    return name


def _runner(name: str) -> str:
    return name if name == EMULATED else _backend(name)


def _gpu_label(name: str) -> str:
    if name not in backends.labels():
        raise ValueError(f"no leaderboard has such a GPU; there are: {', '.join(backends.labels())}")
    return name


def _file_name(name: str) -> str:
    try:
        if name and b"\0" not in os.fsencode(name):
            return name
    except UnicodeEncodeError:
        pass
    raise ValueError("no file can be called so")


def _problem_folders(value: object) -> str | list[str]:
    folders = [_file_name(each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    if not folders or (isinstance(value, list) and len(folders) < len(value)):
        raise ValueError("a folder, or a list of folders, is expected")
    return folders if isinstance(value, list) else folders[0]


def _kernels_folder(name: str) -> str:
    if Path(name).name != "kernels":
        raise ValueError("the folder must be called kernels: its headers and their problems are found through its name")
    return name


def _default_gpus() -> dict[str, list[str]]:
    return {name: list(backends.get(name).default_gpus()) for name in backends.names()}


BackendName = Annotated[str, AfterValidator(_backend)]
GpuLabel = Annotated[str, AfterValidator(_gpu_label)]
Runner = Annotated[str, AfterValidator(_runner)]
FileName = Annotated[str, AfterValidator(_file_name)]
ProblemFolders = Annotated[str | list[str], PlainValidator(_problem_folders)]
Checks = Annotated[str, AfterValidator(parse_checks)]
Schedule = Annotated[str, AfterValidator(parse_schedule)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]      # no socket waits longer than a few years


# What the judge's own dataclasses say where nothing else is asked for: the one statement of these defaults.
_TIMING, _LIMITS, _SANDBOX = TimingOptions(), job.Limits(), Policy()


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Timing(_Strict):
    """How to measure and how much; see ``judge.timing``. ``auto``: graphs on a GPU, the host's clock without one."""

    protocol: AskedProtocol = _TIMING.protocol
    processes: int = Field(default=_TIMING.processes, ge=1, le=MOST_PROCESSES)
    gpu_processes: int = Field(default=_TIMING.gpu_processes, ge=1, le=MOST_PROCESSES)
    min_rounds: int = Field(default=_TIMING.min_rounds, ge=1)
    max_rounds: int = Field(default=_TIMING.max_rounds, ge=1)
    precision: float = Field(default=_TIMING.precision, gt=0)
    seconds: Seconds = _TIMING.seconds
    calls: int = Field(default=_TIMING.calls, ge=0, le=100_000)
    warm: bool = _TIMING.warm

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_rounds > self.max_rounds:
            raise ValueError(f"min_rounds {self.min_rounds} is more than max_rounds {self.max_rounds}")
        return self


class Limits(_Strict):
    """Deadlines in seconds; ``case_gflop``: the largest case to run per backend, and on emulated devices, no entry for
    no limit."""

    load_seconds: Seconds = _LIMITS.load_seconds
    first_call_seconds: Seconds = _LIMITS.first_call_seconds
    call_seconds: Seconds = _LIMITS.call_seconds
    emulated_call_seconds: Seconds = 600.0
    job_seconds: Seconds = _LIMITS.job_seconds
    reference_seconds: Seconds = _LIMITS.reference_seconds
    case_gflop: dict[Runner, Annotated[float, Field(ge=0)]] = {"cpu": 1.0, EMULATED: 20.0}


class Sandbox(_Strict):
    """What the code under test runs in (``docs/sandbox.md``). ``auto``: the strongest isolation this machine can give;
    ``memory_gib``: None for three quarters of the machine's."""

    isolation: Isolation = _SANDBOX.isolation
    memory_gib: Annotated[float, Field(ge=0.25, le=1e6)] | None = None
    scratch_gib: Annotated[float, Field(gt=0, le=1e6)] = _SANDBOX.scratch_bytes / 2**30
    processes: int = Field(default=_SANDBOX.processes, ge=16, le=1_000_000)


class Paths(_Strict):
    """Folders and files; relative ones are relative to the file that names them. Of several folders of problems the
    first one that has a name wins."""

    problems: ProblemFolders = PATHS["problems"]
    kernels: Annotated[FileName, AfterValidator(_kernels_folder)] = PATHS["kernels"]
    peers: FileName = PATHS["peers"]
    cache: FileName | None = None
    database: FileName | None = None
    report: FileName = PATHS["report"]


class Competition(_Strict):
    """A leaderboard somebody may submit to; ``deadline`` is a day, in UTC. ``doctor`` says if we lack the problem."""

    leaderboard: str
    problem: str
    gpus: list[GpuLabel] = []      # for boards that popcorn.labels does not know, or knows otherwise
    deadline: datetime.date | None = None


def _board_name(name: str) -> str:
    if name in ("admin", "submission", "user", "account", "control", "entries"):
        raise ValueError("an address of the server begins so; choose another name")
    return name


class ServeProblem(_Strict):
    """A leaderboard of ``serve``. ``problem`` is a name of the tree or a folder; ``gpus``: empty for all devices here;
    ``tests`` and ``benchmarks`` choose cases as ``run --case`` does: empty for all of the problem."""

    leaderboard: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$"), AfterValidator(_board_name)]
    problem: FileName
    gpus: list[str] = []
    tests: list[str] = []
    benchmarks: list[str] = []
    deadline: datetime.datetime | None = None      # UTC, unless it says otherwise
    visibility: Literal["public", "closed"] = "public"


class Serve(_Strict):
    """The contest server (``docs/run-a-contest.md``). ``registration`` open: whoever asks gets a token that may submit;
    invite: a token may submit once its owner joined with an invite."""

    problems: list[ServeProblem] = []
    registration: Literal["open", "invite"] = "open"
    submissions_per_hour: int = Field(default=60, ge=1)      # of one person on one board, tests and ranked runs apart
    queued_per_person: int = Field(default=10, ge=1)
    requests_per_second: Annotated[float, Field(gt=0)] = 50.0        # of one address, in the long run
    accounts_per_hour: int = Field(default=30, ge=1)                 # that one address may ask for
    lease_seconds: Annotated[float, Field(ge=1, le=3600)] = 30.0     # a worker that is silent for so long is gone


class Settings(_Strict):
    """Everything a run can be told. ``emulate``: always, never, or (None) where there is no real GPU; ``checks`` of an
    emulated device: None for all in test mode and none in the others; ``schedule`` of an emulated NVIDIA GPU: None for
    late."""

    problems: list[str] = ["*"]
    kernels: list[str] = ["*"]
    backends: list[str] = Field(default_factory=backends.names)
    first_look: list[str] = ["fp8_gemm", "flash_attention", "mla_decode"]      # what `run` alone runs
    gpus: dict[BackendName, list[str]] = Field(default_factory=_default_gpus)
    mode: Literal["test", "benchmark", "leaderboard"] = "benchmark"
    seed: StrictInt | None = None
    peers: bool = False
    emulate: bool | None = None
    checks: Checks | None = None
    schedule: Schedule | None = None
    timing: Timing = Timing()
    limits: Limits = Limits()
    sandbox: Sandbox = Sandbox()
    paths: Paths = Paths()
    competitions: list[Competition] = []
    serve: Serve = Serve()


SECTIONS: Mapping[str, type[BaseModel]] = {
    "timing": Timing, "limits": Limits, "sandbox": Sandbox, "paths": Paths, "competitions": Competition,
    "serve": Serve,
}
