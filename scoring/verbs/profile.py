# SPDX-License-Identifier: MIT
"""``profile``: one checked call of each selected case, and what a profiler says about it.

On an emulated device the emulator's own counters, which are modelled on the MI300X and counted alone on NVIDIA's; on a
real device ncu, rocprofv3 or torch's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import backends
from backends.errors import BackendError, CompileError, SourceError
from backends.machine import files
from scoring.config.load import Config
from scoring.output import measured, profile, terminal
from scoring.output.table import Style, use_color, width_of
from scoring.record import ExitCode, Mode, Record, Status
from scoring.run.checkpoint import Keeper
from scoring.run.plan import Plan, kernel_plan
from scoring.run.select import SelectionError, cases_of
from scoring.run.targets import Candidate
from scoring.sandbox import cleanup
from scoring.verbs import run as running

_MOST = 4                # cases of a kernel on a real device: each is a process of its own, several with rocprofv3


def run(options: argparse.Namespace) -> int:
    if not options.kernel:
        raise SelectionError("which kernel? --kernel PROBLEM/VARIANT", ExitCode.USAGE)
    options.mode, options.peers, options.checks = Mode.TEST.value, False, "none"
    options.seconds, options.emulate, options.backend = None, None, None
    tool = options.tool or _tool(options)
    if tool == "emulator":
        return _emulated(options)
    return _measured(options, tool)


def _tool(options: argparse.Namespace) -> str:
    """The profiler of the first real device that is meant, else the emulator."""
    for name, tool in (("cuda", "ncu"), ("rocm", "rocprofv3")):
        backend = backends.get(name)
        known = {label.lower() for target in backend.targets() for label in (target.gpu, target.arch)}
        if options.gpu is not None and options.gpu.lower() not in known:
            continue
        devices = backend.probe().devices
        if any(not device.emulated for device in devices):
            return tool
    return "emulator"


def _with_device() -> list[str]:
    """The backends that torch's profiler can watch here, a device of theirs being here; all of them if none is."""
    names = ["cuda", "rocm"]
    found = [name for name in names if any(not device.emulated for device in backends.get(name).probe().devices)]
    return found or names


def _emulated(options: argparse.Namespace) -> int:
    options.backend, options.emulate = ["rocm"], True
    if options.output:
        raise SelectionError("--output keeps a vendor's file; the emulator's counters are in --json", ExitCode.USAGE)
    settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    backends.use_emulator(True)
    cleanup.clean()
    running.check_isolation(settings)
    plan = _emulated_plan(settings, options)
    keeper = Keeper(None)
    try:
        running.carry_out(plan, options, keeper, keeper.take)
    finally:
        _show(keeper.so_far, plan.candidates, options)
    return running.exit_code(keeper.records, True, build_only=False)


def _emulated_plan(settings: Config, options: argparse.Namespace) -> Plan:
    """On the emulated MI300X; what it has no kernel of, on NVIDIA's emulated GPUs. Raises ``SelectionError``."""
    try:
        return kernel_plan(settings, options)
    except SelectionError as error:
        options.backend = ["cuda"]
        try:
            return kernel_plan(running.settings_of(options), options)
        except SelectionError:
            raise error from None


def _measured(options: argparse.Namespace, tool: str) -> int:
    """A real device: the call is judged, but runs where the tool can watch it, in no sandbox."""
    from scoring.run import profiled

    options.backend, options.emulate = [profiled.BACKEND[tool]] if tool in profiled.BACKEND else _with_device(), False
    settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    backends.use_emulator(False)
    with kernel_plan(settings, options) as plan:
        candidates = plan.candidates
    able = [each for each in candidates if each.place.device is not None]
    if not able:
        raise SelectionError(f"--tool {tool} measures on a real device, and {_reason(candidates)}; --tool "
                             "emulator counts on an emulated one", ExitCode.UNAVAILABLE)
    profiled.require(tool)
    found = [_of(settings, candidate, tool, options) for candidate in able]
    style = Style(color=use_color(sys.stdout), width=width_of(sys.stdout))
    for each in found:
        print(json.dumps(each, allow_nan=False) if options.json else measured.report(each, style),
              end="\n" if options.json else "\n\n")
    good = all(case["status"] == Status.PASSED for each in found for case in each["cases"])
    return ExitCode.OK if good else ExitCode.FAILED


def _reason(candidates: Sequence[Candidate]) -> str:
    return next((each.place.reason.removeprefix("compiled; not run: ") for each in candidates), "there is none here")


def _of(settings: Config, candidate: Candidate, tool: str, options: argparse.Namespace) -> dict[str, Any]:
    """The document of one kernel. Raises ``SelectionError``, ``BackendError``."""
    from scoring.judge import alone, seeds
    from scoring.run import profiled
    from scoring.run.job import make_kernel_job

    cases = cases_of(candidate.problem, options.case, "benchmarks")
    if len(cases) > _MOST or (len(cases) > 1 and options.output):
        raise SelectionError(f"{candidate.problem.name}: {len(cases)} cases match; --case GLOB chooses "
                             f"{'one' if options.output else f'at most {_MOST}'}", ExitCode.USAGE)
    try:
        job = make_kernel_job(settings, candidate, Mode.TEST, cases, False)
    except (CompileError, SourceError) as error:
        raise BackendError(str(error)) from error
    assert candidate.place.device is not None
    base = seeds.SeedSource(job.seed if job.seed is not None else seeds.draw())
    shown = []
    for case in cases:
        with alone.prepared(job, case, base.of(case)) as ready:
            verdict, launches = profiled.measure(tool, job, ready, Path(options.output) if options.output else None)
        shown.append({"case": dict(case.params), "name": case.name, "group": case.group, "status": verdict.status,
                      "message": verdict.message, "launches": launches})
    return measured.document(candidate.problem.name, candidate.kernel, candidate.place.target.gpu,
                             candidate.place.device.name, tool, shown)


def _show(records: Sequence[Record], candidates: Sequence[Candidate], options: argparse.Namespace) -> None:
    style = Style(color=use_color(sys.stdout), width=width_of(sys.stdout))
    for number, record in enumerate(records):
        symbols = _symbols(record, candidates[number]) if any(each.counters for each in record.cases) else None
        shown = symbols or profile.Symbols()
        print(json.dumps(profile.document(record, shown), allow_nan=False) if options.json
              else profile.report(record, shown, style), end="\n" if options.json else "\n\n")
    if not options.json:
        print("\n\n".join(filter(None, (terminal.failures(records), terminal.absences(records)))))


def _symbols(record: Record, candidate: Candidate) -> profile.Symbols:
    """From the build that ran, which the cache has; nothing where it cannot be read."""
    kernels = {launch["kernel"] for result in record.cases for launch in result.counters}
    if not profile.is_modelled(record):      # it ran PTX, whose counters have their lines
        return profile.Symbols(files.short_names(sorted(kernels)))
    try:
        binary = candidate.place.backend.compile(candidate.source, candidate.place.target, candidate.defines)
        found = files.of_binary(binary, candidate.source.text, record.kernel).functions
    except BackendError:
        return profile.Symbols(files.short_names(sorted(kernels)))
    return profile.Symbols(
        {function.mangled: function.name for function in found},
        {(function.mangled, each.address): [str(place) for place in each.places]
         for function in found if function.mangled in kernels for each in function.code if each.places})
