# SPDX-License-Identifier: MIT
"""Which leaderboards there are: from the settings to boards, checked before the server starts."""

from __future__ import annotations

import datetime
import fnmatch
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import backends
from backends.base import Device
from scoring.config.load import Config
from scoring.config.schema import ServeProblem
from scoring.ipc.emulator import EMULATED
from scoring.problem import Problem, ProblemError, discover
from scoring.record import Case, ExitCode
from scoring.run.select import SelectionError, cases_of
from scoring.serve.storage.models import Board


@dataclass(frozen=True)
class Entry:
    """One board as the settings describe it; its cases are chosen already."""

    name: str
    problem: Problem
    gpus: tuple[str, ...]
    chosen: Mapping[str, Any]            # what the judge needs to find the same cases again
    deadline: float | None = None
    visibility: str = "public"


def load_problem(chosen: Mapping[str, Any]) -> Problem:
    """The problem of a board with the board's cases alone. Raises ``ProblemError`` and ``TaskError``."""
    problem = Problem(Path(chosen["folder"]))
    problem.tests = _choose(problem, problem.tests, chosen["tests"], "tests")
    problem.benchmarks = _choose(problem, problem.benchmarks, chosen["benchmarks"], "benchmarks")
    problem.small = {}          # a board's score is over its own benchmarks on every device
    return problem


def _choose(problem: Problem, known: Sequence[Case], patterns: Sequence[str], group: str) -> tuple[Case, ...]:
    if not patterns:
        return tuple(known)
    found = []
    for pattern in patterns:
        matched = [case for case in known if fnmatch.fnmatch(case.name, pattern)]
        matched = matched or [case for case in cases_of(problem, [pattern], group) if case.group == group]
        if not matched:
            raise ProblemError(f"{problem.path}: no case of its {group} matches {pattern!r}")
        found += matched
    return tuple({case.name: case for case in found}.values())


def entries(config: Config, devices: Mapping[str, Device]) -> tuple[list[Entry], list[str]]:
    """The boards that the settings name, each checked; without any, those of the tree's problems that can be ranked.

    ``devices``: by GPU label, what workers will judge on. The second list says what was left out and why.
    Raises ``SelectionError`` for a board that nobody could be ranked on.
    """
    wanted = config.settings.serve.problems
    if wanted:
        names = [each.leaderboard for each in wanted]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SelectionError(f"serve.problems: {', '.join(twice)} stands there twice", ExitCode.USAGE)
        found = [_entry(config, each, devices) for each in wanted]
        for entry in found:
            if reason := "; ".join(unrankable(config, entry, devices)):
                raise SelectionError(f"serve.problems: {entry.name}: {reason}", ExitCode.USAGE)
        return found, []
    kept, left = [], []
    for name in discover(*config.problems):
        given = ServeProblem(leaderboard=name.replace("_", "-"), problem=name)
        entry = _entry(config, given, devices)
        good = tuple(gpu for gpu in entry.gpus if not unrankable(config, entry, devices, (gpu,)))
        left += [f"left out {entry.name}: {reason}" for reason in unrankable(config, entry, devices)]
        if good:
            kept.append(Entry(entry.name, entry.problem, good, entry.chosen))
    if not kept:
        raise SelectionError(
            "no problem of the tree can be ranked on the devices here:\n  " + "\n  ".join(left)
            + "\n  name smaller cases in serve.problems of the settings; see docs/run-a-contest.md",
            ExitCode.UNAVAILABLE)
    return kept, left


def _entry(config: Config, given: ServeProblem, devices: Mapping[str, Device]) -> Entry:
    known = discover(*config.problems)
    folder = known.get(given.problem)
    if folder is None:
        base = config.file.parent if config.file is not None else Path.cwd()
        folder = base / Path(given.problem).expanduser()
    if not (folder / "task.yml").is_file():
        raise SelectionError(f"serve.problems: {given.leaderboard}: {given.problem} is neither a problem of the tree "
                             f"nor a folder with a task.yml (looked in {folder})", ExitCode.USAGE)
    chosen = {"folder": str(folder.resolve()), "tests": given.tests, "benchmarks": given.benchmarks}
    problem = load_problem(chosen)
    if missing := [gpu for gpu in given.gpus if gpu not in devices]:
        raise SelectionError(
            f"serve.problems: {given.leaderboard}: no worker for {', '.join(missing)}; there are: "
            f"{', '.join(devices) or 'none'}", ExitCode.UNAVAILABLE)
    for name in ("generate_input", "check_implementation"):
        if getattr(problem.reference, name, None) is None:
            raise SelectionError(f"serve.problems: {given.leaderboard}: reference.py defines no {name}", ExitCode.USAGE)
    deadline = given.deadline
    if deadline is not None and deadline.tzinfo is None:
        deadline = deadline.replace(tzinfo=datetime.UTC)
    return Entry(given.leaderboard, problem, tuple(given.gpus or devices), chosen,
                 deadline.timestamp() if deadline else None, given.visibility)


def unrankable(
    config: Config, entry: Entry, devices: Mapping[str, Device], gpus: Sequence[str] | None = None,
) -> list[str]:
    """Why nobody could get a score: cases that the judge would leave out on a device, one reason per GPU."""
    if not entry.problem.native:
        return []
    reasons = []
    for gpu in gpus or entry.gpus:
        device, limits = devices[gpu], config.settings.limits.case_gflop
        key = EMULATED if device.emulated else backends.labels()[gpu].backend if gpu in backends.labels() else ""
        limit = limits.get(key)
        large = [case.name for case in entry.problem.benchmarks
                 if limit is not None and entry.problem.binding.flops(case.params) > limit * 1e9]
        if large:
            reasons.append(f"{len(large)} benchmarks are of more than {limit:g} GFLOP on {gpu}, which is "
                           f"limits.case_gflop.{key}; the first is {large[0]}")
    return reasons


def sync(session: Session, found: Iterable[Entry]) -> None:
    """Make the boards of the database those of the settings. A board that they no longer name is hidden, and keeps its
    scores."""
    names = {sync_one(session, entry).name for entry in found}
    for board in session.scalars(select(Board).where(Board.active)):
        board.active = board.name in names


def sync_one(session: Session, entry: Entry) -> Board:
    """Make or change the board of an entry. Deadline and visibility are taken when it is made: later the organiser
    sets them."""
    board = session.scalar(select(Board).where(Board.name == entry.name))
    if board is None:
        board = Board(name=entry.name, secret=secrets.token_hex(32), created=time.time(), deadline=entry.deadline,
                      visibility=entry.visibility)
        session.add(board)
    board.problem, board.gpus, board.active = dict(entry.chosen), list(entry.gpus), True
    board.description, board.task = entry.problem.task.description, public_task(entry.problem, entry.gpus)
    return board


def public_task(problem: Problem, gpus: Sequence[str]) -> dict[str, Any]:
    """What everybody may know of a problem: no seed, and no path."""
    task = problem.task
    return {
        "lang": task.lang, "ranking_by": task.ranking_by, "gpus": list(gpus), "native": problem.native,
        "tests": [dict(case.params) for case in problem.tests],
        "benchmarks": [dict(case.params) for case in problem.benchmarks],
        "test_timeout": task.test_timeout, "benchmark_timeout": task.benchmark_timeout,
        "ranked_timeout": task.ranked_timeout, "files": {"submission.py": "@SUBMISSION@"},
        "templates": dict(task.templates),
    }
