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
from scoring import config, github, jobs, plans, render, units
from scoring.judge import can_go_on
from scoring.keeping import Keeper
from scoring.model import ExitCode, Mode, Record, Status, dumps
from scoring.progress import Progress
from scoring.sandbox import leftovers, tiers
from scoring.sandbox.policy import SandboxError
from scoring.store import Store
from scoring.tables import use_color, width_of


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
        plan = plans.submission_plan(settings, options, Path(submission))
    else:
        plan = plans.kernel_plan(settings, options, build_only)
    store = None if build_only or options.no_save else Store(settings.database)
    keeper = Keeper(store, resume=not build_only and options.resume)
    printed: set[str] = set()

    def show(records: Sequence[Record]) -> None:
        for record in records if options.json else ():
            if record.id not in printed:
                print(dumps(record), flush=True)
                printed.add(record.id)

    def take(record: Record) -> None:
        keeper.take(record)
        show([record])

    try:
        carry_out(plan, options, keeper, take)
        _show(keeper.records, options)
    except KeyboardInterrupt:         # and what a signal raises
        keeper.flush()
        show(keeper.so_far)
        _show(keeper.so_far, options)
        print(_unfinished(plan, keeper), file=sys.stderr)
        raise
    finally:
        for line in keeper.losses():
            print(line, file=sys.stderr)
    return ExitCode.USAGE if keeper.lost else exit_code(keeper.records, plan.required, build_only)


def carry_out(
    plan: plans.Plan, options: argparse.Namespace, keeper: Keeper, take: Callable[[Record], None],
) -> None:
    """All steps of a plan, once ``keeper`` is ready; ``take`` gets every record as soon as it exists."""
    with Progress(plan.total, quiet=options.json, verbose=not options.json) as progress, plan, \
            contextlib.closing(plan.steps(progress)) as steps:
        keeper.prepare()
        for stage, make in steps:
            progress.stage(stage)
            take(make(keeper))
            progress.advance()


def _unfinished(plan: plans.Plan, keeper: Keeper) -> str:
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


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse what could only fail when the work is done; raises ``SelectionError`` (2)."""
    junit = getattr(options, "junit", None)
    if junit and (not Path(junit).absolute().parent.is_dir() or Path(junit).is_dir()):
        raise jobs.SelectionError(f"--junit {junit}: no such folder, or no file", ExitCode.USAGE)


def _show(records: Sequence[Record], options: argparse.Namespace) -> None:
    if not options.json and records:
        print(render.table(records, color=use_color(sys.stdout), width=width_of(sys.stdout)))
    if getattr(options, "junit", None):
        from scoring import junit

        Path(options.junit).write_text(junit.document(records), encoding="utf-8")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github.workflow_commands(records):
            print(line, file=sys.stderr if options.json else sys.stdout)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(github.step_summary(records) + "\n")


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
