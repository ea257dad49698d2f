# SPDX-License-Identifier: MIT
"""``run`` and ``build``: compile, check, time; one record per kernel and target, kept as soon as it exists.

``tune`` does the same with more candidates and another table; what the three share is public here.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import backends
from backends.base import Availability, CompileError, SourceError
from scoring import config, jobs, render, units
from scoring.judge import Job, rejected, score
from scoring.model import Case, ExitCode, Mode, Record, Status, dumps
from scoring.problem import Problem
from scoring.progress import Progress
from scoring.sandbox import leftovers, tiers
from scoring.sandbox.policy import SandboxError
from scoring.store import Store, StoreError
from scoring.tables import use_color

Steps = Generator[tuple[str, Callable[[], Record]], None, None]       # (what it is, how to make it)


def run(options: argparse.Namespace) -> int:
    return execute(options)


def execute(options: argparse.Namespace, build_only: bool = False) -> int:
    """Run or build the selection, show it, keep it; the exit code."""
    settings = settings_of(options, build_only)
    backends.use_cache(settings.cache)
    backends.use_emulator(settings.settings.emulate)
    _check_outputs(options)
    if not build_only:
        leftovers.clean()
        check_isolation(settings)
    submission = None if build_only else options.submission
    if submission is not None:
        plan = _submission_plan(settings, options, Path(submission))
    else:
        plan = kernel_plan(settings, options, build_only)
    keeper = _Keeper(None if build_only or options.no_save else Store(settings.database))

    def take(record: Record) -> None:
        keeper.add(record)
        if options.json:
            print(dumps(record), flush=True)

    try:
        records = carry_out(plan, options, keeper.prepare, take)
        _show(records, options)
    finally:
        keeper.tell()
    return ExitCode.USAGE if keeper.lost else exit_code(records, plan.required, build_only)


def carry_out(
    plan: Plan, options: argparse.Namespace, prepare: Callable[[], None] = lambda: None,
    take: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """The records of all steps of a plan, after ``prepare``; ``take`` gets each as soon as it exists."""
    records: list[Record] = []
    with Progress(plan.total, quiet=options.json, verbose=not options.json) as progress, plan, \
            contextlib.closing(plan.steps(progress.detail)) as steps:
        prepare()
        for stage, make in steps:
            progress.stage(stage)
            records.append(make())
            take(records[-1])
            progress.advance()
    return records


class _Keeper:
    """Puts records into the store, if there is one. What it cannot keep costs nobody the rest of the run."""

    def __init__(self, store: Store | None):
        self.store = store
        self.lost: list[tuple[Record, StoreError]] = []

    def prepare(self) -> None:
        """Raises ``StoreError`` now where nothing could be kept later."""
        if self.store is not None:
            self.store.prepare()

    def add(self, record: Record) -> None:
        if self.store is None:
            return
        try:
            self.store.add(record)
        except StoreError as error:
            self.lost.append((record, error))

    def tell(self) -> None:
        """Name on stderr every record that was not kept, and why."""
        for record, error in self.lost:
            what = f"{record.problem} {record.kernel} on {record.gpu}: {record.status}"
            print(f"error: not kept: record {record.id[:8]} ({units.one_line(what)}): {error}", file=sys.stderr)


class Plan:
    """What to do: steps that each make one record. A context manager that owns a staging folder and compile threads."""

    def __init__(self, total: int, required: bool):
        self.total = total
        self.required = required         # whether the user asked for a backend by name, so that its absence is an error
        self._staging = tempfile.TemporaryDirectory(prefix=leftovers.folder_prefix())
        self.staging = Path(self._staging.name)
        self.candidates: list[jobs.Candidate] = []      # of kernel files, in the order of the steps
        self.make_steps: Callable[[Callable[[str], None]], Steps]

    def steps(self, progress: Callable[[str], None]) -> Steps:
        return self.make_steps(progress)

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._staging.cleanup()


def check_isolation(settings: config.Config) -> None:
    """Raises ``SelectionError`` (4) if the isolation that was asked for cannot be had here."""
    try:
        tiers.choose(jobs.sandbox(settings))
    except SandboxError as error:
        raise jobs.SelectionError(str(error), ExitCode.UNAVAILABLE) from error


def settings_of(options: argparse.Namespace, build_only: bool = False) -> config.Config:
    """The settings with the flags on top."""
    flags: dict[str, object] = {"backends": options.backend, "problems": options.problem, "kernels": options.kernel}
    if not build_only:
        flags |= {
            "mode": options.mode, "seed": options.seed, "peers": options.peers, "timing.seconds": options.seconds,
            "emulate": options.emulate, "checks": options.checks,
            "sandbox.isolation": options.isolation,
        }
    settings = config.load(flags, options.config)
    if Mode(settings.settings.mode) is Mode.LEADERBOARD and settings.settings.seed is not None:
        raise config.ConfigError("seed: leaderboard mode draws its own; leave --seed and the setting out")
    return settings


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


def kernel_plan(
    settings: config.Config, options: argparse.Namespace, build_only: bool = False,
    expand: Callable[[jobs.Candidate], Sequence[jobs.Candidate]] = lambda candidate: [candidate],
    built_first: bool = False,
) -> Plan:
    """What the selection means, for the devices here; ``expand`` makes what is built of every kernel.

    With ``built_first`` no compiler runs any more beside what is timed.

    Raises ``SelectionError`` if it means nothing.
    """
    found, required = _probe(settings, options)
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
        raise jobs.SelectionError("nothing matches the selection; `python -m scoring list` shows what there is")
    if not build_only:
        wanted = {candidate.place.backend.name for candidate in chosen}
        found = _prepared(settings, {name: found[name] for name in found if name in wanted}, options)
        chosen = candidates()
    mode = Mode.TEST if build_only else Mode(settings.settings.mode)
    plan = Plan(len(chosen), required or options.gpu is not None)
    plan.candidates = chosen

    def steps(progress: Callable[[str], None]) -> Steps:
        with ThreadPoolExecutor(max_workers=max(1, min(8, os.cpu_count() or 1))) as pool:
            def compile_one(candidate: jobs.Candidate) -> Job:
                return jobs.build(
                    settings, candidate, mode, cases[candidate.problem.name], settings.settings.peers, progress,
                    not build_only,
                )

            futures = [pool.submit(compile_one, candidate) for candidate in chosen]
            try:
                if built_first:
                    progress(f"compiling {len(futures)} builds")
                    wait(futures)
                for candidate, future in zip(chosen, futures, strict=True):
                    yield f"compiling {candidate.source.language}/{candidate.source.name}", _maker(
                        candidate, future, mode, build_only, options
                    )
            except BaseException:        # interrupted: nobody waits for a compiler to finish
                pool.shutdown(wait=False, cancel_futures=True)
                backends.stop()
                raise

    plan.make_steps = steps
    return plan


def _maker(
    candidate: jobs.Candidate, future: Future[Job], mode: Mode, build_only: bool, options: argparse.Namespace
) -> Callable[[], Record]:
    def make() -> Record:
        try:
            job = future.result()
        except (CompileError, SourceError) as error:
            return rejected(
                candidate.problem, candidate.place.target, candidate.source, mode, error, candidate.kernel
            )
        if build_only:
            return score(job.compiled_only())
        name = candidate.problem.name
        chosen = ["--backend", candidate.place.backend.name, "--problem", name,
                  "--kernel", f"{name}/{candidate.source.variant}"]
        return _repeatable(score(job), options, chosen, candidate.defines)

    return make


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


def _defines(given: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The values of ``-D``; raises ``SelectionError`` (2) for a name that is given twice."""
    names = [name for name, _value in given or ()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise jobs.SelectionError(f"-D {', '.join(twice)}: more than one value; run once for each", ExitCode.USAGE)
    return dict(given or ())


def _submission_plan(settings: config.Config, options: argparse.Namespace, path: Path) -> Plan:
    if not path.is_file():
        raise jobs.SelectionError(f"no submission file {path}", ExitCode.USAGE)
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

    def steps(progress: Callable[[str], None]) -> Steps:
        job = jobs.submission(
            settings, problem, place, path, plan.staging, Mode(settings.settings.mode), cases, settings.settings.peers,
            progress,
        )
        where = ["--task", options.task] if options.task else ["--problem", problem.name]
        chosen = ["--submission", str(path), *where, "--backend", place.backend.name]
        yield f"{path.name} on {place.target.gpu}", lambda: _repeatable(score(job), options, chosen, {})

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


def _cases(problem: Problem, patterns: Sequence[str] | None) -> list[Case]:
    """The problem's cases, or those whose name (or one ``key=value`` list in it) matches a pattern."""
    if not patterns:
        return list(problem.cases)
    return [case for case in problem.cases if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]


def _knows(backend: str, gpu: str) -> bool:
    return any(gpu.lower() in (t.gpu.lower(), t.arch.lower()) for t in backends.get(backend).targets())


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


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse what could only fail when the work is done; raises ``SelectionError`` (2)."""
    junit = getattr(options, "junit", None)
    if junit and (not Path(junit).absolute().parent.is_dir() or Path(junit).is_dir()):
        raise jobs.SelectionError(f"--junit {junit}: no such folder, or no file", ExitCode.USAGE)


def _show(records: Sequence[Record], options: argparse.Namespace) -> None:
    if not options.json:
        print(render.table(records, color=use_color(sys.stdout)))
    if getattr(options, "junit", None):
        from scoring import junit

        Path(options.junit).write_text(junit.document(records), encoding="utf-8")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in render.github_annotations(records):
            print(line, file=sys.stderr if options.json else sys.stdout)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(render.github_summary(records) + "\n")


def exit_code(records: Sequence[Record], required: bool, build_only: bool) -> ExitCode:
    """1 if anything failed, else 2 if a problem's own files are broken, else 4 if what was asked for by name, or a
    case, could not be judged here, else 0."""
    if any(record.status not in (Status.PASSED, Status.UNAVAILABLE) for record in records):
        return ExitCode.FAILED
    if any("problem_broken" in record.system for record in records):
        return ExitCode.USAGE
    absent = [record for record in records if record.status is Status.UNAVAILABLE]
    if not build_only and any(required or record.cases for record in absent):
        return ExitCode.UNAVAILABLE
    return ExitCode.OK
