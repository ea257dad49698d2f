# SPDX-License-Identifier: MIT
"""What a command line asks to be done: which kernels or which submission, on which cases, for which place, in steps.

Everything is compiled before the first step (``run.build``), so that no compiler runs beside what is timed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import backends
from backends import _prebuilt
from backends.base import Availability, Binary
from backends.errors import CompileError, SourceError, UnknownTarget
from scoring.config.load import Config
from scoring.judge.job import Entrant, Job, Listener
from scoring.judge.score import rejected, score
from scoring.output import units
from scoring.popcorn.directives import not_text
from scoring.problem import Problem
from scoring.record import Case, ExitCode, Mode, Record
from scoring.run import first_look, rivals, sanitized, targets
from scoring.run.build import builds_of, compile_all
from scoring.run.checkpoint import Keeper
from scoring.run.job import cases_for, make_kernel_job, make_submission_job, read_submission, with_tensors
from scoring.run.progress import Progress
from scoring.run.select import SelectionError, cases_of, explain_empty, uncompilable
from scoring.sandbox import cleanup

Steps = Generator[tuple[str, Callable[[Keeper], Record]], None, None]       # (what it is, how to make it)


class Plan:
    """What to do: steps that each make one record. A context manager that owns a staging folder."""

    def __init__(self, total: int, required: bool):
        self.total = total
        self.required = required         # whether a backend or a file was named, so that nothing run is an error
        self._staging = tempfile.TemporaryDirectory(prefix=cleanup.folder_prefix())
        self.staging = Path(self._staging.name)
        self.candidates: list[targets.Candidate] = []      # of kernel files, in the order of the steps
        self.left_out: str | None = None         # of a first look: what it does not run
        self.make_steps: Callable[[Progress], Steps]

    def steps(self, progress: Progress) -> Steps:
        return self.make_steps(progress)

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._staging.cleanup()


def kernel_plan(
    settings: Config, options: argparse.Namespace, build_only: bool = False,
    expand: Callable[[targets.Candidate], Sequence[targets.Candidate]] = lambda candidate: [candidate],
) -> Plan:
    """What the selection means, for the devices here; ``expand`` makes what is built of every kernel.

    Raises ``SelectionError`` if it means nothing.
    """
    found, required = _probe(settings, options)
    without = {backends.get(name).language for name in settings.settings.backends if name not in found}
    problems = [p for p in targets.select_problems(settings, settings.settings.problems) if p.native]
    brief = not build_only and first_look.is_wanted(settings, options)
    others = len(problems)
    if brief:
        problems = first_look.problems_of(settings, problems)
    others -= len(problems)
    for wanted in filter(None, (options.gpu, options.arch)):
        found = _narrow(found, wanted)
    patterns = None if build_only else options.case
    group = "tests" if build_only or Mode(settings.settings.mode) is Mode.TEST else "benchmarks"
    cases = {problem.name: cases_of(problem, patterns, group) for problem in problems}
    scope = partial(cases_for, named=bool(patterns), everything=getattr(options, "all", False))

    def candidates() -> list[targets.Candidate]:
        known = targets.candidates(
            settings, problems, found, settings.settings.kernels, options.gpu, options.arch, _defines(options.define)
        )
        return [each for candidate in known if cases[candidate.problem.name] for each in expand(candidate)]

    chosen = candidates()
    if not chosen:
        root = settings.path("kernels").parent
        names = {problem.name for problem in problems}
        if reason := uncompilable(root, settings.settings.kernels, names, without):
            raise SelectionError(f"{reason}\n  `python -m scoring doctor` says why", ExitCode.UNAVAILABLE)
        reason = explain_empty(
            root, settings.settings.kernels, {backends.get(name).language for name in found},
            cases, patterns, {problem.name: problem.cases for problem in problems},
            [*filter(None, (options.gpu, options.arch))])
        raise SelectionError(
            f"nothing matches the selection: {reason}\n  `python -m scoring list` shows what there is")
    if not build_only:
        wanted = {candidate.place.backend.name for candidate in chosen}
        found = _prepared(settings, {name: found[name] for name in found if name in wanted}, options)
        chosen = candidates()
    if getattr(options, "sanitize", None):
        sanitized.require([candidate.place for candidate in chosen])
        chosen = [candidate for candidate in chosen if sanitized.can_look(candidate.place)]
    idle = [candidate for candidate in chosen if candidate.place.device is None] if brief else []
    if len(idle) < len(chosen):
        chosen = [candidate for candidate in chosen if candidate not in idle]
    mode = Mode.TEST if build_only else Mode(settings.settings.mode)
    against = getattr(options, "against", None) or []
    racing = [rivals.resolve(settings, each.problem, each.place, each.kernel, against) for each in chosen]
    plan = Plan(len(chosen), required or options.gpu is not None)
    plan.candidates = chosen
    plan.left_out = first_look.left_out(idle, others) if brief else None

    def steps(progress: Progress) -> Steps:
        wanted = [builds_of(settings, candidate, mode, to_run=not build_only) for candidate in chosen]
        others = [rivals.builds_of_rivals(settings, each) for each in racing]
        made = compile_all({key: build for each in (*wanted, *others) for key, build in each.items()}, progress)
        for number, (candidate, (kernel, *_others)) in enumerate(zip(chosen, wanted, strict=True)):
            entrants = rivals.entrants(
                settings, candidate.problem, candidate.place, racing[number], lambda key: made[key].result(),
                plan.staging / str(number))
            make = partial(_record, settings, options, candidate, made[kernel], mode, build_only, progress, entrants)
            mine = scope(candidate.problem, candidate.place, cases[candidate.problem.name])
            yield _title(candidate, build_only), partial(make, mine, brief)

    plan.make_steps = steps
    return plan


def _title(candidate: targets.Candidate, build_only: bool) -> str:
    place = candidate.place
    how = "on" if place.device is not None and not build_only else "for"
    return f"{candidate.problem.name} {candidate.kernel} {how} {place.target.gpu}"


def _record(
    settings: Config, options: argparse.Namespace, candidate: targets.Candidate, compiled: Future[Binary],
    mode: Mode, build_only: bool, progress: Progress, entrants: tuple[Entrant, ...], cases: Sequence[Case],
    brief: bool, keeper: Keeper,
) -> Record:
    """The record of a candidate that a compiler has accepted or refused."""
    try:
        job = make_kernel_job(
            settings, candidate, mode, cases, settings.settings.peers, not build_only,
            compiled.result())
    except (CompileError, SourceError) as error:
        return _described(rejected(
            candidate.problem, candidate.place.target, candidate.source, mode, error, candidate.kernel), candidate)
    if build_only:
        return _described(score(job.compiled_only()), candidate)
    job = _against(first_look.limited(job, candidate) if brief else job, entrants)
    job = replace(job, sanitizers=getattr(options, "sanitize", None) or ())
    name = candidate.problem.name
    chosen = ["--backend", candidate.place.backend.name, "--problem", name,
              "--kernel", f"{name}/{candidate.source.variant}"]

    def finish(record: Record) -> Record:
        return _described(_repeatable(record, options, chosen, candidate.defines), candidate)

    return _scored(job, keeper, finish, progress)


def _described(record: Record, candidate: targets.Candidate) -> Record:
    """The record with what the kernel file's directives say for its reader."""
    source = candidate.source
    step = str(source.step) if source.step else ""
    return replace(record, facts=replace(record.facts, flags=source.flags, step=step, expect=source.expect))


def _against(job: Job, entrants: tuple[Entrant, ...]) -> Job:
    """The job with its rivals, where there is something to race."""
    if job.contestant is None or not entrants:
        return job
    python = any(rival.contestant is not None and not rival.contestant.parameters for rival in entrants)
    return replace(with_tensors(job) if python else job, rivals=entrants)


class Events(Listener):
    """What a judgement says goes to the progress line and, record by record, to the checkpoint."""

    def __init__(self, progress: Progress, keeper: Keeper, finish: Callable[[Record], Record]):
        self._progress, self._keeper, self._finish = progress, keeper, finish

    def progress(self, text: str) -> None:
        self._progress.detail(text)

    def judged(self, record: Record) -> None:
        self._keeper.checkpoint(self._finish(record))


def _scored(job: Job, keeper: Keeper, finish: Callable[[Record], Record], progress: Progress) -> Record:
    """The record of a job, ``finish``ed; ``keeper`` gets it after every case."""
    earlier = keeper.earlier(job)
    if earlier is not None:
        progress.note(f"{job.kernel}: resumed with {units.plural(len(earlier.cases), 'case')} of {earlier.id[:8]}")
    elif keeper.resume:
        progress.note(f"{job.kernel}: nothing to resume")
    record = score(replace(job, earlier=earlier), Events(progress, keeper, finish))
    return finish(sanitized.examined(job, record, progress.detail) if job.sanitizers else record)


def _repeatable(
    record: Record, options: argparse.Namespace, chosen: Sequence[str], defines: Mapping[str, str]
) -> Record:
    """The record with the arguments that, with a seed and a case, run it again."""
    arguments = [*(("--config", options.config) if options.config else ()), "run", *chosen]
    if options.emulate is not None:
        arguments.append("--emulate" if options.emulate else "--no-emulate")
    tools = getattr(options, "sanitize", None) or ()
    given = ("--sanitize", ",".join(tools)) if tools else ("--checks", options.checks)
    for flag, value in (("--gpu", options.gpu), ("--arch", options.arch), given,
                        ("--schedule", getattr(options, "schedule", None))):
        arguments += [flag, value] if value else []
    for name, value in defines.items():
        arguments += ["-D", f"{name}={value}"]
    # Leaderboard mode draws its own seeds. What it and a benchmark check first is the same.
    if not tools:
        arguments += ["--mode", Mode.TEST if record.mode is Mode.TEST else Mode.BENCHMARK]
    return replace(record, facts=replace(record.facts, repeat=tuple(str(argument) for argument in arguments)))


def submission_plan(settings: Config, options: argparse.Namespace, path: Path) -> Plan:
    """One step: a Python file on the problem it answers. Raises ``SelectionError``."""
    problem = submission_problem(settings, options, path)
    if wrong := not_text(read_submission(path)):
        raise SelectionError(f"{path}:{wrong[0]}: {wrong[1]}", ExitCode.USAGE)
    place, required = _submission_place(settings, options)
    tools = getattr(options, "sanitize", None) or ()
    if tools:
        sanitized.require([place])
    cases = cases_of(problem, options.case, "tests" if Mode(settings.settings.mode) is Mode.TEST else "benchmarks")
    cases = cases_for(problem, place, cases, bool(options.case), options.all)
    if not cases:
        raise SelectionError(f"{problem.name} has no case that matches")
    place, gpus = _place_of_ranks(settings, problem, place, cases, required)
    name = f"{path.name}@{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    racing = rivals.resolve(settings, problem, place, name, options.against or [])
    plan = Plan(1, required=True)
    labels = targets.submission_gpus(path)
    stray = place.backend.on_host and not required and bool(labels)

    def steps(progress: Progress) -> Steps:
        if stray:
            progress.note(f"{path.name} is for {' or '.join(labels)}, says its header, and none is here: it runs on "
                          "the CPU, which can do what torch does there, and no GPU's code")
        job = make_submission_job(
            settings, problem, place, path, plan.staging, Mode(settings.settings.mode), cases, settings.settings.peers,
            stray, gpus,
        )
        made = compile_all(rivals.builds_of_rivals(settings, racing), progress)
        job = _against(job, rivals.entrants(
            settings, problem, place, racing, lambda key: made[key].result(), plan.staging / "rivals"))
        job = replace(job, sanitizers=tools)
        where = ["--task", options.task] if options.task else ["--problem", problem.name]
        chosen = ["--submission", str(path), *where, "--backend", place.backend.name]
        finish = partial(_repeatable, options=options, chosen=chosen, defines={})
        yield f"{path.name} on {place.target.gpu}", lambda keeper: _scored(job, keeper, finish, progress)

    plan.make_steps = steps
    return plan


def submission_problem(settings: Config, options: argparse.Namespace, path: Path) -> Problem:
    """The problem that a Python file answers: of --task, --problem or its header. Raises ``SelectionError``."""
    if not path.is_file():
        raise SelectionError(f"no submission file {path}", ExitCode.USAGE)
    if wrong := not_text(path.read_bytes()):
        raise SelectionError(f"{path}:{wrong[0]}: {wrong[1]}", ExitCode.USAGE)
    if options.task:
        problem = Problem(Path(options.task))
        for warning in problem.task.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return problem
    names = options.problem or [name for name in [targets.submission_problem(settings, path)] if name]
    if len(names) != 1:
        raise SelectionError("--submission needs one --problem NAME or --task DIR (its header names none)", 2)
    matched = targets.select_problems(settings, names)
    if len(matched) != 1:
        raise SelectionError(f"{names[0]!r} matches {len(matched)} problems; a submission answers one", 2)
    return matched[0]


def _place_of_ranks(
    settings: Config, problem: Problem, place: targets.Place, cases: Sequence[Case], asked: bool,
) -> tuple[targets.Place, int]:
    """Where a distributed task runs, and how many GPUs its ranks take there, one each; elsewhere ``place`` and 0.

    With fewer GPUs than ranks it runs on the CPU. Raises ``SelectionError`` (4) if the GPUs were asked for by name.
    """
    if not problem.task.multi_gpu or place.device is None or place.device.emulated or place.backend.on_host:
        return place, 0
    wanted = max((size for case in cases if isinstance(size := case.params.get("world_size"), int)), default=0)
    here = sum(not device.emulated for device in place.backend.probe().devices)
    if wanted <= here:
        return place, wanted
    if asked:
        raise SelectionError(f"{problem.name} has {wanted} ranks with a GPU each, and there are {here} here; "
                             "--backend cpu runs them on the CPU", ExitCode.UNAVAILABLE)
    cpu = backends.get("cpu")
    return targets.places(settings, cpu, cpu.probe(), None)[0], 0


def _submission_place(settings: Config, options: argparse.Namespace) -> tuple[targets.Place, bool]:
    """Where a Python submission runs: the backend asked for, else the first GPU here, else the CPU."""
    asked = options.backend or ([] if options.gpu is None else [n for n in backends.names() if _knows(n, options.gpu)])
    for name in asked or [backend.name for backend in backends.every()]:
        backend = backends.get(name)
        available = backend.probe()
        emulated = all(device.emulated for device in available.devices)
        if asked or (available.can_run and (settings.settings.emulate or not emulated)):
            available = _prepared(settings, {name: available}, options)[name]
            found = targets.places(settings, backend, available, options.gpu)
            if not found:
                raise SelectionError(f"{name}: no device here, and no GPU in gpus.{name} of the settings", 4)
            return found[0], bool(asked)
    raise SelectionError("no device to run a submission on; see `python -m scoring doctor`", ExitCode.UNAVAILABLE)


def _probe(settings: Config, options: argparse.Namespace) -> tuple[dict[str, Availability], bool]:
    """Availability of the selected backends; those without compiler are named on stderr.

    Raises ``SelectionError`` (4) if a backend that was asked for cannot even compile.
    """
    required = settings.origins["backends"] not in ("default", str(settings.file))
    found: dict[str, Availability] = {}
    for name in dict.fromkeys(settings.settings.backends):
        available = backends.get(name).probe()
        if not available.can_compile and name in _prebuilt.backends():
            available = replace(available, compiler="compiled on another machine")
        if available.can_compile:
            found[name] = available
            continue
        text = f"{name}: {'; '.join(available.reasons) or 'no compiler'}"
        if required:
            raise SelectionError(text, ExitCode.UNAVAILABLE)
        if not options.json:
            print(f"left out {text}", file=sys.stderr)
    return found, required


def _prepared(
    settings: Config, found: dict[str, Availability], options: argparse.Namespace
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
                raise SelectionError(text, ExitCode.UNAVAILABLE)
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
        raise UnknownTarget(wanted, sorted(labels))
    text = f"{wanted} needs the backend {' or '.join(others)}, which is not selected or has no compiler here"
    raise SelectionError(f"{text}; see `python -m scoring doctor`", ExitCode.UNAVAILABLE)


def _knows(backend: str, gpu: str) -> bool:
    return any(gpu.lower() in (t.gpu.lower(), t.arch.lower()) for t in backends.get(backend).targets())


def _defines(given: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The values of ``-D``; raises ``SelectionError`` (2) for a name that is given twice."""
    names = [name for name, _value in given or ()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SelectionError(f"-D {', '.join(twice)}: more than one value; run once for each", ExitCode.USAGE)
    return dict(given or ())
