# SPDX-License-Identifier: MIT
"""``profile`` on a real device: one checked call of a case under a vendor's profiler."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backends import _process
from backends.errors import BackendError
from backends.instruments import ncu, rocprofv3, sanitizer, torch_trace
from scoring.judge.alone import Alone
from scoring.judge.check import Verdict
from scoring.judge.job import Job
from scoring.record import ExitCode, Status
from scoring.run.select import SelectionError

TOOLS = ("ncu", "rocprofv3", "torch", "emulator")
BACKEND = {"ncu": "cuda", "rocprofv3": "rocm", "emulator": "rocm"}     # torch's takes either
SECONDS = 900.0          # of one call, which a profiler repeats

Measured = tuple[Verdict, list[dict[str, Any]]]


def require(tool: str) -> None:
    """Raises ``ToolchainMissing`` if the tool is not here."""
    if tool in ("ncu", "rocprofv3"):
        (ncu if tool == "ncu" else rocprofv3).find()


def measure(tool: str, job: Job, case: Alone, keep: Path | None) -> Measured:
    """The verdict on a case's call and what ``tool`` measured in it; ``keep`` is where the tool's own file goes.

    Raises ``SelectionError`` (4) where the tool may not look, ``BackendError`` for an answer that is none.
    """
    if keep is not None and not keep.absolute().parent.is_dir():
        raise SelectionError(f"--output {keep}: no such folder", ExitCode.USAGE)
    return _MEASURES[tool](job, case, keep)


def _ncu(job: Job, case: Alone, keep: Path | None) -> Measured:
    program, report = ncu.find(), case.folder / "report.ncu-rep"
    called = case.call(lambda watched: ncu.command(program, report, watched), SECONDS)
    if why := ncu.refusal(called.printed):
        raise SelectionError(why, ExitCode.UNAVAILABLE)
    if called.verdict.status is Status.TIMEOUT or not report.is_file():
        return called.verdict, []
    done = _process.run(ncu.printing(program, report), case.folder / "raw.csv", case.folder, SECONDS)
    _keep([report], keep)
    return called.verdict, ncu.parse(done.output)


def _rocprofv3(job: Job, case: Alone, keep: Path | None) -> Measured:
    program, verdict = rocprofv3.find(), Verdict(Status.PASSED)
    kernels = sanitizer.identifiers([str(each.name) for each in job.binary.usage.kernels]) if job.binary else []
    printed = ""
    for number, group in enumerate(rocprofv3.GROUPS):
        out = case.folder / f"pass{number}"

        def command(watched: Sequence[str], out: Path = out, group: Sequence[str] = group) -> list[str]:
            return rocprofv3.command(program, out, group, watched, kernels)

        called = case.call(command, SECONDS)
        printed = printed or called.printed
        verdict = verdict if not verdict.passed else called.verdict
    texts = rocprofv3.tables(case.folder)
    if not texts and verdict.passed:
        last = next((line for line in reversed(printed.splitlines()) if line.strip()), "it said nothing")
        raise SelectionError(f"rocprofv3 counted nothing: {last.strip()}", ExitCode.UNAVAILABLE)
    _keep(sorted(case.folder.rglob("*counter_collection.csv")), keep)
    return verdict, rocprofv3.parse(texts, job.target.peaks.get("bytes"))


def _torch(job: Job, case: Alone, keep: Path | None) -> Measured:
    called = case.call(lambda watched: watched, SECONDS, trace=True)
    if not case.trace.is_file():
        return called.verdict, []
    _keep([case.trace], keep)
    launches = torch_trace.parse(case.trace)
    if not launches and called.verdict.passed:
        raise BackendError("torch's profiler saw no kernel: does its build here include CUPTI or ROCTracer?")
    return called.verdict, launches


def _keep(files: Sequence[Path], keep: Path | None) -> None:
    """Copy the tool's own files; several become one text, each behind the other."""
    if keep is None or not files:
        return
    if len(files) == 1:
        shutil.copyfile(files[0], keep)
    else:
        keep.write_text("".join(file.read_text(errors="replace") for file in files))


_MEASURES: dict[str, Callable[[Job, Alone, Path | None], Measured]] = {
    "ncu": _ncu, "rocprofv3": _rocprofv3, "torch": _torch}
