# SPDX-License-Identifier: MIT
"""What a command line asks to be done: which kernels or which submission, on which cases, for which place, in steps.

Everything is compiled before the first step (``scoring.builds``), so that no compiler runs beside what is timed.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import backends
from backends.base import Availability, Binary, CompileError, SourceError
from scoring import builds, config, jobs, popcorn, units, unmatched
from scoring.judge import Job, rejected, score
from scoring.keeping import Keeper
from scoring.model import Case, ExitCode, Mode, Record
from scoring.problem import Problem
from scoring.progress import Progress
from scoring.sandbox import leftovers

Steps = Generator[tuple[str, Callable[[Keeper], Record]], None, None]       # (what it is, how to make it)


class Plan:
    """What to do: steps that each make one record. A context manager that owns a staging folder."""

    def __init__(self, total: int, required: bool):
        self.total = total
        self.required = required         # whether the user asked for a backend by name, so that its absence is an error
        self._staging = tempfile.TemporaryDirectory(prefix=leftovers.folder_prefix())
        self.staging = Path(self._staging.name)
        self.candidates: list[jobs.Candidate] = []      # of kernel files, in the order of the steps
        self.make_steps: Callable[[Progress], Steps]

    def steps(self, progress: Progress) -> Steps:
        return self.make_steps(progress)

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._staging.cleanup()


def kernel_plan(
    settings: config.Config, options: argparse.Namespace, build_only: bool = False,
    expand: Callable[[jobs.Candidate], Sequence[jobs.Candidate]] = lambda candidate: [candidate],
) -> Plan:
    """What the selection means, for the devices here; ``expand`` makes what is built of every kernel.

    Raises ``SelectionError`` if it means nothing.
    """
    found, required = _probe(settings, options)
    without = {backends.get(name).language for name in settings.settings.backends if name not in found}
    problems = [p for p in jobs.select_problems(settings, settings.settings.problems) if p.native]
    for wanted in filter(None, (options.gpu, options.arch)):
        found = _narrow(found, wanted)
    patterns = None if build_only else options.case
    cases = {problem.name: _cases(problem, patterns) for problem in problems}

    def candidates() -> list[jobs.Candidate]:
        known = jobs.candidates(
            settings, problems, found, settings.settings.kernels, options.gpu, options.arch, _defines(options.define)
        )
        return [each for candidate in known if cases[candidate.problem.name] for each in expand(candidate)]

    chosen = candidates()
    if not chosen:
        root = settings.path("kernels").parent
        names = {problem.name for problem in problems}
        if reason := unmatched.uncompilable(root, settings.settings.kernels, names, without):
            raise jobs.SelectionError(f"{reason}\n  `python -m scoring doctor` says why", ExitCode.UNAVAILABLE)
        reason = unmatched.why(
            root, settings.settings.kernels, {backends.get(name).language for name in found},
            cases, patterns, {problem.name: problem.cases for problem in problems},
            [*filter(None, (options.gpu, options.arch))])
        raise jobs.SelectionError(
            f"nothing matches the selection: {reason}\n  `python -m scoring list` shows what there is")
    if not build_only:
        wanted = {candidate.place.backend.name for candidate in chosen}
        found = _prepared(settings, {name: found[name] for name in found if name in wanted}, options)
        chosen = candidates()
    mode = Mode.TEST if build_only else Mode(settings.settings.mode)
    plan = Plan(len(chosen), required or options.gpu is not None)
    plan.candidates = chosen

    def steps(progress: Progress) -> Steps:
        wanted = [jobs.builds_of(settings, candidate, mode, to_run=not build_only) for candidate in chosen]
        made = builds.carry_out({key: build for each in wanted for key, build in each.items()}, progress)
        for candidate, (kernel, *_others) in zip(chosen, wanted, strict=True):
            make = partial(_record, settings, options, candidate, made[kernel], mode, build_only, progress)
            yield _title(candidate, build_only), partial(make, cases[candidate.problem.name])

    plan.make_steps = steps
    return plan


def _title(candidate: jobs.Candidate, build_only: bool) -> str:
    place = candidate.place
    how = "on" if place.device is not None and not build_only else "for"
    return f"{candidate.problem.name} {candidate.kernel} {how} {place.target.gpu}"


def _record(
    settings: config.Config, options: argparse.Namespace, candidate: jobs.Candidate, compiled: Future[Binary],
    mode: Mode, build_only: bool, progress: Progress, cases: Sequence[Case], keeper: Keeper,
) -> Record:
    """The record of a candidate that a compiler has accepted or refused."""
    try:
        job = jobs.build(
            settings, candidate, mode, cases, settings.settings.peers, progress.detail, not build_only,
            compiled.result())
    except (CompileError, SourceError) as error:
        return rejected(candidate.problem, candidate.place.target, candidate.source, mode, error, candidate.kernel)
    if build_only:
        return score(job.compiled_only())
    name = candidate.problem.name
    chosen = ["--backend", candidate.place.backend.name, "--problem", name,
              "--kernel", f"{name}/{candidate.source.variant}"]
    finish = partial(_repeatable, options=options, chosen=chosen, defines=candidate.defines)
    return _scored(job, keeper, finish, progress)


def _scored(job: Job, keeper: Keeper, finish: Callable[[Record], Record], progress: Progress) -> Record:
    """The record of a job, ``finish``ed; ``keeper`` gets it after every case."""
    earlier = keeper.earlier(job)
    if earlier is not None:
        progress.note(f"{job.kernel}: resumed with {units.plural(len(earlier.cases), 'case')} of {earlier.id[:8]}")
    elif keeper.resume:
        progress.note(f"{job.kernel}: nothing to resume")
    return finish(score(replace(job, earlier=earlier, checkpoint=lambda record: keeper.checkpoint(finish(record)))))


def _repeatable(
    record: Record, options: argparse.Namespace, chosen: Sequence[str], defines: Mapping[str, str]
) -> Record:
    """The record with the arguments that, with a seed and a case, run it again."""
    arguments = [*(("--config", options.config) if options.config else ()), "run", *chosen]
    if options.emulate is not None:
        arguments.append("--emulate" if options.emulate else "--no-emulate")
    for flag, value in (("--gpu", options.gpu), ("--arch", options.arch), ("--checks", options.checks)):
        arguments += [flag, value] if value else []
    for name, value in defines.items():
        arguments += ["-D", f"{name}={value}"]
    # Leaderboard mode draws its own seeds. What it and a benchmark check first is the same.
    arguments += ["--mode", Mode.TEST if record.mode is Mode.TEST else Mode.BENCHMARK]
    return replace(record, system={**record.system, "repeat": [str(argument) for argument in arguments]})


def submission_plan(settings: config.Config, options: argparse.Namespace, path: Path) -> Plan:
    """One step: a Python file on the problem it answers. Raises ``SelectionError``."""
    if not path.is_file():
        raise jobs.SelectionError(f"no submission file {path}", ExitCode.USAGE)
    if wrong := popcorn.not_text(path.read_bytes()):
        raise jobs.SelectionError(f"{path}:{wrong[0]}: {wrong[1]}", ExitCode.USAGE)
    if options.task:
        problem = Problem(Path(options.task))
        for warning in problem.task.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    else:
        names = options.problem or [name for name in [jobs.submission_problem(settings, path)] if name]
        if len(names) != 1:
            raise jobs.SelectionError("--submission needs one --problem NAME or --task DIR (its header names none)", 2)
        matched = jobs.select_problems(settings, names)
        if len(matched) != 1:
            raise jobs.SelectionError(f"{names[0]!r} matches {len(matched)} problems; a submission answers one", 2)
        problem = matched[0]
    place, required = _submission_place(settings, options)
    cases = _cases(problem, options.case)
    if not cases:
        raise jobs.SelectionError(f"{problem.name} has no case that matches")
    plan = Plan(1, required)
    labels = jobs.submission_gpus(path)
    stray = place.target.backend == "cpu" and not required and bool(labels)

    def steps(progress: Progress) -> Steps:
        if stray:
            progress.note(f"{path.name} is for {' or '.join(labels)}, says its header, and none is here: it runs on "
                          "the CPU, which can do what torch does there, and no GPU's code")
        job = jobs.submission(
            settings, problem, place, path, plan.staging, Mode(settings.settings.mode), cases, settings.settings.peers,
            progress.detail,
        )
        where = ["--task", options.task] if options.task else ["--problem", problem.name]
        chosen = ["--submission", str(path), *where, "--backend", place.backend.name]
        finish = partial(_repeatable, options=options, chosen=chosen, defines={})
        yield f"{path.name} on {place.target.gpu}", lambda keeper: _scored(job, keeper, finish, progress)

    plan.make_steps = steps
    return plan


def _submission_place(settings: config.Config, options: argparse.Namespace) -> tuple[jobs.Place, bool]:
    """Where a Python submission runs: the backend asked for, else the first GPU here, else the CPU."""
    asked = options.backend or ([] if options.gpu is None else [n for n in backends.names() if _knows(n, options.gpu)])
    for name in asked or [*[n for n in backends.names() if n != "cpu"], "cpu"]:
        backend = backends.get(name)
        available = backend.probe()
        emulated = all(device.emulated for device in available.devices)
        if asked or (available.can_run and (settings.settings.emulate or not emulated)):
            available = _prepared(settings, {name: available}, options)[name]
            found = jobs.places(settings, backend, available, options.gpu)
            if not found:
                raise jobs.SelectionError(f"{name}: no device here, and no GPU in gpus.{name} of the settings", 4)
            return found[0], bool(asked)
    raise jobs.SelectionError("no device to run a submission on; see `python -m scoring doctor`", ExitCode.UNAVAILABLE)


def _probe(settings: config.Config, options: argparse.Namespace) -> tuple[dict[str, Availability], bool]:
    """Availability of the selected backends; those without compiler are named on stderr.

    Raises ``SelectionError`` (4) if a backend that was asked for cannot even compile.
    """
    required = settings.origins["backends"] not in ("default", str(settings.file))
    found: dict[str, Availability] = {}
    for name in dict.fromkeys(settings.settings.backends):
        available = backends.get(name).probe()
        if available.can_compile:
            found[name] = available
            continue
        text = f"{name}: {'; '.join(available.reasons) or 'no compiler'}"
        if required:
            raise jobs.SelectionError(text, ExitCode.UNAVAILABLE)
        if not options.json:
            print(f"left out {text}", file=sys.stderr)
    return found, required


def _prepared(
    settings: config.Config, found: dict[str, Availability], options: argparse.Namespace
) -> dict[str, Availability]:
    """``found`` with everything made that running needs; what could not be made is named on stderr.

    Raises ``SelectionError`` (4) if that was asked for.
    """
    def tell(line: str) -> None:
        if not options.json:
            print(line, file=sys.stderr, flush=True)

    prepared = {name: backends.get(name).prepare(available, tell) for name, available in found.items()}
    for name, available in prepared.items():
        if len(available.devices) < len(found[name].devices):
            text = f"{name}: {available.reasons[-1]}"
            if settings.settings.emulate:
                raise jobs.SelectionError(text, ExitCode.UNAVAILABLE)
            print(text, file=sys.stderr)
    return prepared


def _narrow(found: dict[str, Availability], wanted: str) -> dict[str, Availability]:
    """The backends among ``found`` that know a GPU or arch.

    Raises ``UnknownTarget`` if none anywhere does, ``SelectionError`` (4) if only one that is not among them does.
    """
    narrowed = {name: available for name, available in found.items() if _knows(name, wanted)}
    if narrowed:
        return narrowed
    others = [name for name in backends.names() if _knows(name, wanted)]
    if not others:
        labels = {label for name in backends.names() for t in backends.get(name).targets() for label in (t.gpu, t.arch)}
        raise backends.base.UnknownTarget(wanted, sorted(labels))
    text = f"{wanted} needs the backend {' or '.join(others)}, which is not selected or has no compiler here"
    raise jobs.SelectionError(f"{text}; see `python -m scoring doctor`", ExitCode.UNAVAILABLE)


def _knows(backend: str, gpu: str) -> bool:
    return any(gpu.lower() in (t.gpu.lower(), t.arch.lower()) for t in backends.get(backend).targets())


def _cases(problem: Problem, patterns: Sequence[str] | None) -> list[Case]:
    """The problem's cases, or those whose name (or one ``key=value`` list in it) matches a pattern."""
    if not patterns:
        return list(problem.cases)
    return [case for case in problem.cases if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]


def _defines(given: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The values of ``-D``; raises ``SelectionError`` (2) for a name that is given twice."""
    names = [name for name, _value in given or ()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise jobs.SelectionError(f"-D {', '.join(twice)}: more than one value; run once for each", ExitCode.USAGE)
    return dict(given or ())
