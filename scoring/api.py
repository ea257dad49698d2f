# SPDX-License-Identifier: MIT
"""What ``import scoring`` offers: problems, judgements and records, as the command line has them.

Errors: ``ConfigError`` (settings), ``SelectionError`` (nothing matches, or not available here), ``ProblemError`` and
``TaskError`` (a problem's files), ``BackendError`` (kernels and compilers), ``StoreError`` (records). Their messages
say what was tried and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import backends
from scoring import cli
from scoring.config.load import load_config, locate_files
from scoring.problem import Problem, discover
from scoring.record import Record
from scoring.run.checkpoint import Keeper
from scoring.run.plan import kernel_plan, submission_plan
from scoring.run.select import problem_names as matching
from scoring.store.record_files import read_records as parse
from scoring.store.store import Store
from scoring.verbs import run as running


def problem_names(config: str | PathLike[str] | None = None) -> list[str]:
    """Names of all problems that the settings (a config.yaml, by default the one that commands use) know."""
    return list(discover(*locate_files(_text(config)).problems))


def load_problem(name: str | PathLike[str], config: str | PathLike[str] | None = None) -> Problem:
    """A problem by its name, or by its folder, which may be any with GPU MODE's interface.

    Raises ``SelectionError`` for an unknown name, ``ProblemError`` and ``TaskError`` for a folder that is none.
    """
    folder = Path(name)
    if not (folder / "task.yml").is_file():
        homes = locate_files(_text(config)).problems
        found = discover(*homes)
        (known,) = matching(found, homes, [str(name)])
        folder = found[known]
    return Problem(folder)


def score(
    problem: str | PathLike[str], *, kernel: str | None = None, submission: str | PathLike[str] | None = None,
    backend: str | None = None, gpu: str | None = None, mode: str = "benchmark", cases: Sequence[str] = (),
    defines: Mapping[str, str | int] | None = None, peers: bool = False, seed: int | None = None,
    seconds: float | None = None, config: str | PathLike[str] | None = None, keep: bool = False,
) -> list[Record]:
    """Judge kernels of a problem, or one Python file: one record per kernel and target, as ``run`` makes them.

    ``problem`` is a name, or with ``submission`` also a folder. ``kernel`` is a glob, None for all. ``mode`` is "test",
    "benchmark" or "leaderboard"; ``cases`` are globs of case names; ``defines`` are values of tunables; ``seconds`` is
    the time for one timed case. ``keep`` stores the records, as commands do. A kernel that fails raises nothing: its
    record has the status.
    """
    arguments = [*(("--config", str(config)) if config is not None else ()), "run", "--json", "--mode", mode]
    folder = submission is not None and (Path(problem) / "task.yml").is_file()
    arguments += ["--task" if folder else "--problem", str(problem)]
    for flag, value in (("--kernel", kernel), ("--submission", submission), ("--backend", backend), ("--gpu", gpu),
                        ("--seed", seed), ("--seconds", seconds)):
        arguments += [flag, str(value)] if value is not None else []
    arguments += [word for case in cases for word in ("--case", case)]
    arguments += [word for name, value in (defines or {}).items() for word in ("-D", f"{name}={value}")]
    options = cli.parser().parse_args([*arguments, *(["--peers"] if peers else [])])
    settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    backends.use_emulator(settings.settings.emulate)
    running.check_isolation(settings)
    plan = submission_plan(settings, options, Path(submission)) if submission else kernel_plan(settings, options)
    keeper = Keeper(Store(settings.database) if keep else None)
    running.carry_out(plan, options, keeper, keeper.take)
    for line in keeper.losses():
        raise OSError(line)
    return keeper.records


def read_records(
    path: str | PathLike[str] | None = None, *, problem: str | None = None, kernel: str | None = None,
    gpu: str | None = None, mode: str | None = None, limit: int | None = None,
    config: str | PathLike[str] | None = None,
) -> list[Record]:
    """Records of the database (None: the one that commands use), newest first, or of a file of JSON lines, in order.

    ``problem``, ``kernel``, ``gpu`` and ``mode`` are globs and restrict what comes from a database; so does ``limit``.
    Raises ``StoreError``.
    """
    if path is not None and Path(path).suffix in (".jsonl", ".json"):
        return parse(Path(path).read_text(encoding="utf-8").splitlines(), str(path))
    store = Store(Path(path) if path is not None else load_config(file=_text(config)).kept)
    return store.records(problem=problem, kernel=kernel, gpu=gpu, mode=mode, limit=limit)


def _text(config: str | PathLike[str] | None) -> str | None:
    return None if config is None else str(config)
