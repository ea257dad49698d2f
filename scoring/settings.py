# SPDX-License-Identifier: MIT
"""The settings and what each may be. Imports pydantic, so ``scoring.config`` imports this only when all are needed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, model_validator

import backends
from scoring.config import PATHS
from scoring.emulation import EMULATED, parse_checks
from scoring.popcorn import GPUS


def _backend(name: str) -> str:
    if name not in backends.names():
        raise ValueError(f"no such backend; there are: {', '.join(backends.names())}")
    return name


def _runner(name: str) -> str:
    return name if name == EMULATED else _backend(name)


def _gpu_label(name: str) -> str:
    if name not in GPUS:
        raise ValueError(f"no leaderboard has such a GPU; there are: {', '.join(GPUS)}")
    return name


def _file_name(name: str) -> str:
    try:
        if name and b"\0" not in os.fsencode(name):
            return name
    except UnicodeEncodeError:
        pass
    raise ValueError("no file can be called so")


def _kernels_folder(name: str) -> str:
    if Path(name).name != "kernels":
        raise ValueError("the folder must be called kernels: its headers and their problems are found through its name")
    return name


BackendName = Annotated[str, AfterValidator(_backend)]
GpuLabel = Annotated[str, AfterValidator(_gpu_label)]
Runner = Annotated[str, AfterValidator(_runner)]
FileName = Annotated[str, AfterValidator(_file_name)]
Checks = Annotated[str, AfterValidator(parse_checks)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]      # no socket waits longer than a few years


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Timing(_Strict):
    """How to measure and how much; see ``scoring.timing``. ``auto``: graphs on a GPU, the host's clock without one."""

    protocol: Literal["auto", "graph_cold/2", "event_cold/2"] = "auto"
    min_rounds: int = Field(default=8, ge=1)
    max_rounds: int = Field(default=24, ge=1)
    precision: float = Field(default=0.01, gt=0)
    seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_rounds > self.max_rounds:
            raise ValueError(f"min_rounds {self.min_rounds} is more than max_rounds {self.max_rounds}")
        return self


class Limits(_Strict):
    """Deadlines in seconds; ``case_gflop``: the largest case to run per backend, and on emulated devices, no entry for
    no limit."""

    load_seconds: Seconds = 300.0
    first_call_seconds: Seconds = 90.0
    call_seconds: Seconds = 20.0
    emulated_call_seconds: Seconds = 600.0
    job_seconds: Seconds = 3600.0
    case_gflop: dict[Runner, Annotated[float, Field(ge=0)]] = {"cpu": 1.0, EMULATED: 20.0}


class Sandbox(_Strict):
    """What the code under test runs in (``docs/sandbox.md``). ``auto``: the strongest isolation this machine can give;
    ``memory_gib``: None for three quarters of the machine's."""

    isolation: Literal["auto", "bubblewrap", "landlock", "process"] = "auto"
    memory_gib: Annotated[float, Field(ge=0.25, le=1e6)] | None = None
    scratch_gib: Annotated[float, Field(gt=0, le=1e6)] = 8.0
    processes: int = Field(default=4096, ge=16, le=1_000_000)


class Paths(_Strict):
    """Folders and files; relative ones are relative to the file that names them."""

    problems: FileName = PATHS["problems"]
    kernels: Annotated[FileName, AfterValidator(_kernels_folder)] = PATHS["kernels"]
    peers: FileName = PATHS["peers"]
    cache: FileName | None = None
    database: FileName | None = None
    report: FileName = PATHS["report"]


class Competition(_Strict):
    """A leaderboard somebody may submit to; ``deadline`` is a day, in UTC. ``doctor`` says if we lack the problem."""

    leaderboard: str
    problem: str
    gpus: list[GpuLabel] = []      # for boards that scoring.popcorn does not know, or knows otherwise
    deadline: datetime.date | None = None


class Settings(_Strict):
    """Everything a run can be told. ``emulate``: always, never, or (None) where there is no real GPU; ``checks`` of an
    emulated device: None for all in test mode and none in the others."""

    problems: list[str] = ["*"]
    kernels: list[str] = ["*"]
    backends: list[str] = ["cpu", "cuda", "rocm"]
    gpus: dict[BackendName, list[str]] = {"cpu": ["CPU"], "cuda": ["H100", "L4"], "rocm": ["MI300"]}
    mode: Literal["test", "benchmark", "leaderboard"] = "benchmark"
    seed: StrictInt | None = None
    peers: bool = False
    emulate: bool | None = None
    checks: Checks | None = None
    timing: Timing = Timing()
    limits: Limits = Limits()
    sandbox: Sandbox = Sandbox()
    paths: Paths = Paths()
    competitions: list[Competition] = []


SECTIONS: Mapping[str, type[BaseModel]] = {
    "timing": Timing, "limits": Limits, "sandbox": Sandbox, "paths": Paths, "competitions": Competition,
}
