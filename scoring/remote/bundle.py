# SPDX-License-Identifier: MIT
"""A bundle: one folder with the scorer, problems, kernels, settings and pure Python packages that a run needs.

    run.sh run.py job.json     what to do, and how (``scoring.far``)
    code/                      our packages, the selected problems, their kernels, all headers
    packages/                  PyYAML, tabulate and the like, in Python alone
    prebuilt/                  libraries that were compiled here (``libraries``)
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import backends
from backends._home import HOME, PACKAGES
from scoring.config import frozen
from scoring.config.load import Config
from scoring.popcorn.task import SUBMISSION, load_task
from scoring.problem import Problem
from scoring.record import ExitCode
from scoring.run.select import SelectionError

FOLDER = "warpwave-job"
SETTINGS = f"settings{frozen.SUFFIX}"
# Packages by the name they are imported by. What has a part in C works without it.
CARRIED = {"yaml": "PyYAML", "tabulate": "tabulate", "pycparser": "pycparser", "elftools": "pyelftools",
           "msgpack": "msgpack"}
_OURS = {".py", ".cpp", ".h", ".hpp", ".c", ".cu", ".hip", ".sql", ".j2", ".in", ".inc", ".typed", ".json"}
_PATHS = {"problems": "problems", "kernels": "kernels", "peers": "benchmarks/peers", "cache": "../cache",
          "database": "../records.db", "report": "../report.html"}
_RUN = """#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs this bundle; records go to records.jsonl beside this file. PYTHON names a Python that has torch.
exec "${PYTHON:-python3}" "$(dirname "$0")/run.py" "$@"
"""


@dataclass(frozen=True)
class Selection:
    """What is to be run there, beside the settings. ``arguments`` are those of ``run`` that are no settings."""

    problems: tuple[Problem, ...]
    arguments: tuple[str, ...]
    submission: Path | None = None
    task: Path | None = None
    against: tuple[str, ...] = ()


def stage(folder: Path, config: Config, selection: Selection) -> None:
    """Write all of a bundle but its libraries into the empty ``folder``. Raises ``SelectionError`` and ``OSError``."""
    code = folder / "code"
    for package in ("backends", "scoring"):
        _copy(PACKAGES / package, code / package, lambda path: path.suffix in _OURS)
    homes = {home.resolve() for home in config.problems}
    names = {problem.name for problem in selection.problems if problem.path.parent in homes}      # not of --task
    for home in config.problems:
        of_home = {problem.name for problem in selection.problems if problem.path.parent == home.resolve()}
        _copy_problems(home, code / "problems", of_home)
    _copy_kernels(config.path("kernels"), code / "kernels", names)
    if config.settings.peers:
        for name in names:
            _copy(config.path("peers") / name, code / "benchmarks" / "peers" / name, lambda path: path.suffix == ".py")
    (folder / "packages").mkdir()
    for package in CARRIED:
        _copy_package(package, folder / "packages")
    arguments = [*selection.arguments, *_inputs(folder, selection)]
    (code / SETTINGS).write_text(frozen.freeze(config, config.settings, _PATHS))
    shutil.copyfile(Path(__file__).parents[1] / "far.py", folder / "run.py")
    (folder / "run.sh").write_text(_RUN)
    (folder / "job.json").write_text(json.dumps({
        "schema": 1, "arguments": ["--config", SETTINGS, "run", *arguments],
        "emulate": bool(config.settings.emulate), "resumable": config.settings.mode != "leaderboard",
    }, indent=1) + "\n")


def archive(folder: Path, below: str = "") -> bytes:
    """The files of ``folder`` as a .tar.gz, equal bytes for equal files; ``below`` is the folder they unpack to."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(str(Path(below, path.relative_to(folder))))
            entry.size, entry.mode = path.stat().st_size, 0o755 if path.suffix in (".sh", ".so") else 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
    return buffer.getvalue()


def identity(packed: bytes) -> str:
    """What tells one job from another: hex digits of its content."""
    return hashlib.sha256(packed).hexdigest()[:16]


def _copy(source: Path, target: Path, wanted: Callable[[Path], bool]) -> None:
    """The files below ``source`` that are ``wanted``; nothing if it is not there. Links and caches stay out."""
    for path in sorted(source.rglob("*")) if source.is_dir() else ():
        if path.is_file() and "__pycache__" not in path.parts and wanted(path):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def _copy_problems(home: Path, target: Path, names: set[str]) -> None:
    """The selected problems, and what lies beside them for several."""
    for folder in dict.fromkeys((HOME / "problems", home)):
        for path in folder.glob("*.py"):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.name)
    for name in names:
        _copy(home / name, target / name, lambda path: path.suffix in (".py", ".h", ".yml"))
        _gather(home, home / name, target / name)


def _gather(home: Path, problem: Path, target: Path) -> None:
    """Copy files that task.yml takes from outside the folder of problems into the problem, and name them there."""
    task = target / "task.yml"
    for name, source in load_task(problem).files:
        path = (problem / source).resolve()
        if source != SUBMISSION and path.is_file() and not path.is_relative_to(home.resolve()):
            shutil.copyfile(path, target / name)
            task.write_text(task.read_text(encoding="utf-8").replace(source, name), encoding="utf-8")


def _copy_kernels(home: Path, target: Path, names: set[str]) -> None:
    """All headers, and the kernel files of the selected problems."""
    kernels = set(backends.suffixes().values())
    for folder in dict.fromkeys((HOME / "kernels", home)):
        _copy(folder, target, lambda path: path.suffix not in kernels or path.parent.name in names)


def _copy_package(name: str, target: Path) -> None:
    """The Python files of an installed package, and its licence."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SelectionError(f"the package {name} is not here, and the other machine needs it", ExitCode.UNAVAILABLE)
    if spec.submodule_search_locations:
        _copy(Path(spec.origin).parent, target / name, lambda path: path.suffix == ".py")
    else:
        shutil.copyfile(spec.origin, target / f"{name}.py")
    for file in importlib.metadata.files(CARRIED[name]) or ():
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            shutil.copyfile(str(file.locate()), target / f"{name}.{file.name}")


def _inputs(folder: Path, selection: Selection) -> list[str]:
    """Flags for the files that were named, copied into the bundle."""
    arguments: list[str] = []
    if selection.submission is not None:
        arguments += ["--submission", _input(folder, selection.submission, "submission")]
        if selection.task is None and len(selection.problems) == 1:
            arguments += ["--problem", selection.problems[0].name]
    if selection.task is not None:
        arguments += ["--task", _copy_task(folder, selection.task)]
    for number, text in enumerate(selection.against):
        what, bracket, values = text.partition("[")
        path = Path(what)
        arguments += ["--against", f"{_input(folder, path, f'rival{number}')}{bracket}{values}"
                      if path.is_file() and path.suffix == ".py" else text]
    return arguments


def _input(folder: Path, path: Path, name: str) -> str:
    place = folder / "inputs" / name / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)
    return f"../inputs/{name}/{path.name}"


def _copy_task(folder: Path, task: Path) -> str:
    """A foreign problem folder and the files elsewhere that its task.yml names, in the same places to each other."""
    home = task.resolve()
    files = [(home / source).resolve() for _name, source in load_task(home).files if source != SUBMISSION]
    files = [path for path in files if path.is_file()]
    top = Path(os.path.commonpath([home, *(path.parent for path in files)]))
    target = folder / "inputs" / "task"
    _copy(home, target / home.relative_to(top), lambda path: path.stat().st_size < 1 << 24)
    for path in files:
        place = target / path.relative_to(top)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return f"../inputs/task/{home.relative_to(top).as_posix()}"

