# SPDX-License-Identifier: MIT
"""A Python submission for a GPU that is not here: what it gives to ``load_inline`` is compiled, and nothing is run.

The file is imported in a worker, which calls the compiler. Where the import compiles nothing, one call follows, because
many submissions compile when they are first called. All of it is the worker's claim, so no record passes here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import _diagnostics, _emulated
from scoring.ipc.arena import ArenaError
from scoring.ipc.requests import Built, Load, PythonSpec
from scoring.ipc.template import UnsupportedData
from scoring.judge.budget import TooLarge
from scoring.judge.case_run import CaseRun
from scoring.judge.seeds import SeedSource
from scoring.judge.worker_process import WorkerFailure, WorkerProcess
from scoring.problem import ProblemError, ProblemNeeds
from scoring.record import Record, Status

if TYPE_CHECKING:
    from scoring.judge.job import Job

_FUNCTION = re.compile(r"Compiling entry function '[^']+' for '(sm_\w+)'")


def compiled(job: Job, base: Record) -> Record:
    """``base``, the record before anything happened, with what the compiler made of the submission's strings.

    COMPILE_ERROR where it refused one, else UNAVAILABLE.
    """
    started = time.monotonic()
    assert job.contestant is not None
    built, failure, isolation = _build(job)
    base = replace(base, isolation=isolation, seconds=time.monotonic() - started)
    log = "\n".join(str(entry.get("log", "")) for entry in built)
    if any(entry.get("failed") is True for entry in built) or (failure and failure.status is Status.COMPILE_ERROR
                                                               and not built):
        text = str(failure) if failure and failure.status is Status.COMPILE_ERROR else log
        return replace(base, status=Status.COMPILE_ERROR, message=text, compile=refused(text, job))
    if not built:
        why = f": {failure}" if failure else ""
        message = f"{job.reason}; nothing was compiled: the file gives load_inline no source for it{why}"
        return replace(base, status=Status.UNAVAILABLE, message=message)
    arches = dict.fromkeys(_FUNCTION.findall(log))
    target = replace(job.target, arch=job.target.arch if job.target.arch in arches else next(iter(arches), ""))
    usage = job.backend.usage(log, Path("none"), target)
    names = ", ".join(str(entry.get("name", "")) for entry in built)
    message = f"compiled for {job.target.gpu} ({target.arch}) and not run ({names}): {job.reason}"
    if any(device.gpu == job.target.gpu for device in _emulated.CUDA_DEVICES):
        message += "; --emulate runs it on the CPU"
    return replace(
        base, status=Status.UNAVAILABLE, message=message, target=target.arch or base.target,
        usage=[dict(vars(kernel)) for kernel in usage.kernels],
        compile={"command": [], "version": "", "seconds": _seconds(built), "cached": False, "diagnostics": []})


def refused(message: str, job: Job) -> dict[str, Any]:
    """The compiler's part of a record, of the messages it refused a submission with."""
    spec = job.contestant.spec if job.contestant is not None else None
    shown = spec.extensions.shown if isinstance(spec, PythonSpec) and spec.extensions else ""
    found = _diagnostics.parse(message, Path.cwd(), shown) if shown else ()
    return {"command": [], "version": "", "seconds": 0.0, "cached": False, "log": message,
            "diagnostics": [dict(vars(each)) for each in found]}


def _build(job: Job) -> tuple[Sequence[Mapping[str, Any]], WorkerFailure | None, str]:
    """What was compiled, what went wrong, and in which isolation. Only a failure of the compiler is a fault."""
    from scoring.judge.cases import needed

    assert job.contestant is not None
    failure: WorkerFailure | None = None
    try:
        worker = WorkerProcess(
            files=needed(job), sandbox=job.sandbox, until=time.monotonic() + job.limits.job_seconds)
    except WorkerFailure as error:
        return (), error, "process"
    with worker:
        try:
            worker.request(Load(job.contestant.name, job.contestant.spec), job.limits.load_seconds)
        except WorkerFailure as error:
            failure = error
        built = _built(worker, job.contestant.name)
        if failure is None and not built:
            failure = _call(job, worker)
            built = _built(worker, job.contestant.name)
        return built, failure, worker.isolation


def _call(job: Job, worker: WorkerProcess) -> WorkerFailure | None:
    """Call the submission on the first case; what it answers does not matter."""
    job.problem.without_gpu() if not job.problem.native else None
    first = next((case for case in job.cases if case.group == "tests"), None) or next(iter(job.cases), None)
    if first is None:
        return None
    try:
        with CaseRun.of(job, first, worker, SeedSource(0).of(first)) as run:
            run.first_call_seconds = job.limits.load_seconds
            run.check(1)
    except WorkerFailure as failure:
        return failure
    except (ArenaError, ProblemError, ProblemNeeds, TooLarge, UnsupportedData):
        return None
    return None


def _built(worker: WorkerProcess, contestant: str) -> Sequence[Mapping[str, Any]]:
    if not worker.alive:
        return ()
    try:
        claimed = worker.request(Built(contestant), 20.0).get("built")
    except WorkerFailure:
        return ()
    return [entry for entry in claimed if isinstance(entry, dict)] if isinstance(claimed, list) else ()


def _seconds(built: Sequence[Mapping[str, Any]]) -> float:
    return sum(value for entry in built if isinstance(value := entry.get("seconds"), float) and 0 <= value < 1e6)
