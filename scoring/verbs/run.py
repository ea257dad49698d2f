# SPDX-License-Identifier: MIT
"""``run`` and ``build``: compile, check, time; one record per kernel and target, kept as soon as it exists.

``tune`` does the same with more candidates and another table; what the three share is public here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import backends
from scoring.config.load import Config, ConfigError, load_config
from scoring.output import first_look, github, terminal, units
from scoring.output.table import use_color, width_of
from scoring.record import ExitCode, Mode, Record, Status, dumps
from scoring.run import sanitized
from scoring.run.checkpoint import Keeper, can_go_on
from scoring.run.job import sandbox_policy
from scoring.run.plan import Plan, kernel_plan, submission_plan
from scoring.run.progress import Progress
from scoring.run.select import SelectionError
from scoring.sandbox import cleanup, isolation
from scoring.sandbox.compiler import Compilers
from scoring.sandbox.environment import hide_argument
from scoring.sandbox.policy import SandboxError
from scoring.store.store import Store


def run(options: argparse.Namespace) -> int:
    return execute(options)


def execute(options: argparse.Namespace, build_only: bool = False) -> int:
    """Run or build the selection, show it, keep it; the exit code."""
    if getattr(options, "sanitize", None):
        sanitized.ask(options)
    settings = settings_of(options, build_only)
    backends.use_cache(settings.cache)
    backends.use_emulator(settings.settings.emulate)
    check_outputs(options)
    if not build_only:
        cleanup.clean()
        check_isolation(settings)
    backends.confine(Compilers(sandbox_policy(settings)))
    submission = None if build_only else options.submission
    if submission is not None:
        plan = submission_plan(settings, options, Path(submission))
    else:
        plan = kernel_plan(settings, options, build_only)
    store = None if build_only or options.no_save else Store(settings.database)
    keeper = Keeper(store, resume=not build_only and options.resume)
    printed: set[str] = set()

    def tell(records: Sequence[Record]) -> None:
        for record in records:
            if record.id not in printed:
                printed.add(record.id)
                if options.json:
                    print(dumps(record), flush=True)
                if getattr(options, "records", None):
                    with Path(options.records).open("a", encoding="utf-8") as file:
                        file.write(dumps(record) + "\n")

    def take(record: Record) -> None:
        keeper.take(record)
        tell([record])

    try:
        carry_out(plan, options, keeper, take)
        show(keeper.records, options, plan.left_out)
    except KeyboardInterrupt:         # and what a signal raises
        keeper.flush()
        tell(keeper.so_far)
        show(keeper.so_far, options, plan.left_out)
        print(_unfinished(plan, keeper), file=sys.stderr)
        raise
    finally:
        for line in keeper.losses():
            print(line, file=sys.stderr)
    return ExitCode.USAGE if keeper.lost else exit_code(keeper.records, plan.required, build_only)


def carry_out(
    plan: Plan, options: argparse.Namespace, keeper: Keeper, take: Callable[[Record], None],
) -> None:
    """All steps of a plan, once ``keeper`` is ready; ``take`` gets every record as soon as it exists."""
    with Progress(plan.total, quiet=options.json, verbose=not options.json) as progress, plan, \
            contextlib.closing(plan.steps(progress)) as steps:
        keeper.prepare()
        for stage, make in steps:
            progress.stage(stage)
            take(make(keeper))
            progress.advance()


def _unfinished(plan: Plan, keeper: Keeper) -> str:
    """What a run that was ended has judged, what not, and where the rest can be had."""
    told = [f"judged {len(keeper.records)} of {units.plural(plan.total, 'kernel')}"]
    partial = keeper.partial
    if partial is not None:
        done, left = len(partial.cases), len(partial.unjudged)
        told.append(
            f"{partial.problem} {partial.kernel} {partial.status}, {done} of {units.plural(done + left, 'case')}")
    if keeper.so_far:
        told.append(f"kept in {keeper.store.path}" if keeper.store is not None else "not kept")
    if keeper.store is not None and partial is not None and can_go_on(partial):
        told.append("the same command with --resume goes on from there")
    return "; ".join(told)


def check_isolation(settings: Config) -> None:
    """Raises ``SelectionError`` (4) if the isolation that was asked for cannot be had here."""
    try:
        isolation.choose(sandbox_policy(settings))
    except SandboxError as error:
        raise SelectionError(str(error), ExitCode.UNAVAILABLE) from error


def settings_of(options: argparse.Namespace, build_only: bool = False) -> Config:
    """The settings with the flags on top."""
    flags: dict[str, object] = {"backends": options.backend, "problems": options.problem, "kernels": options.kernel}
    if not build_only:
        flags |= {
            "mode": options.mode, "seed": options.seed, "peers": options.peers, "timing.seconds": options.seconds,
            "timing.calls": getattr(options, "calls", 0) or None,
            "timing.warm": getattr(options, "warm", False) or None,
            "emulate": options.emulate, "checks": options.checks,
            "schedule": getattr(options, "schedule", None),
            "sandbox.isolation": options.isolation,
        }
    settings = load_config(flags, options.config)
    hide_argument("seed")            # before any worker starts: some can read the command lines of this machine
    if Mode(settings.settings.mode) is Mode.LEADERBOARD and settings.settings.seed is not None:
        raise ConfigError("seed: leaderboard mode draws its own; leave --seed and the setting out")
    return settings


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse what could only fail when the work is done; raises ``SelectionError`` (2)."""
    for flag in ("junit", "records"):
        name = getattr(options, flag, None)
        if name and (not Path(name).absolute().parent.is_dir() or Path(name).is_dir()):
            raise SelectionError(f"--{flag} {name}: no such folder, or no file", ExitCode.USAGE)


def show(records: Sequence[Record], options: argparse.Namespace, left_out: str | None = None) -> None:
    """Print what the user asked for. ``left_out`` is None unless this was a first look."""
    color, width = use_color(sys.stdout), width_of(sys.stdout)
    if not options.json and records and left_out is not None:
        print(first_look.table(records, left_out, color=color, width=width))
    elif not options.json and records:
        verbose = getattr(options, "verbose", False)
        print(terminal.table(records, color=color, width=width, verbose=verbose))
    if getattr(options, "junit", None):
        from scoring.output import junit

        Path(options.junit).write_text(junit.document(records), encoding="utf-8")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github.workflow_commands(records):
            print(line, file=sys.stderr if options.json else sys.stdout)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(github.step_summary(records) + "\n")


def exit_code(records: Sequence[Record], required: bool, build_only: bool) -> ExitCode:
    """1 if anything failed, else 2 if a problem's own files are broken, else 4 if nothing, or not what was asked for by
    name, or not every case could be judged here, else 0."""
    if any(record.status not in (Status.PASSED, Status.UNAVAILABLE) for record in records):
        return ExitCode.FAILED
    if any(record.facts.problem_broken for record in records):
        return ExitCode.USAGE
    absent = [record for record in records if record.status is Status.UNAVAILABLE]
    if not build_only and any(required or record.cases or len(absent) == len(records) for record in absent):
        return ExitCode.UNAVAILABLE
    return ExitCode.OK
