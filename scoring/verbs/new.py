# SPDX-License-Identifier: MIT
"""``new``: write a problem or a kernel that works, to be changed into one's own."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import backends
from backends._home import HOME, INSTALLED
from scoring.config.load import load_config, locate_files
from scoring.config.paths import Locations
from scoring.problem import Problem, discover
from scoring.record import ExitCode
from scoring.run import skeleton
from scoring.run.select import SelectionError

_PATHS = "paths: {problems: problems, kernels: kernels}\n"


def run(options: argparse.Namespace) -> int:
    settings: Locations = load_config({}, options.config)
    if INSTALLED and settings.path("problems").is_relative_to(HOME):
        settings = _own_folder(settings, options)
    if options.what == "problem":
        if options.backend or options.like:
            raise SelectionError("new problem takes no --backend and no --like; it has a kernel for the CPU", 2)
        files, then = _problem(settings, options.name)
    else:
        files, then = _kernel(settings, options)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if options.json:
        print(json.dumps({"schema": 1, "files": [str(path) for path in files], "then": then}))
        return ExitCode.OK
    for path in files:
        print(f"wrote {_shown(path)}")
    print("next:", *(f"  python -m scoring {command}" for command in then), sep="\n")
    return ExitCode.OK


def _own_folder(settings: Locations, options: argparse.Namespace) -> Locations:
    """A folder of problems and kernels here, since those of an installed package are not for writing.

    It gets a config.yaml, and for a kernel a copy of its problem. Raises ``SelectionError`` (2) if there is one that
    names no folders.
    """
    here = Path.cwd()
    if (here / "config.yaml").exists():
        raise SelectionError(f"{here / 'config.yaml'} names no folders of your own; add: {_PATHS.strip()}", 2)
    problem = options.name.partition("/")[0]
    if options.what == "kernel" and (HOME / "problems" / problem / "task.yml").is_file():
        shutil.copytree(HOME / "problems" / problem, here / "problems" / problem)
        for path in (HOME / "problems").glob("*.py"):
            shutil.copyfile(path, here / "problems" / path.name)
        for backend in backends.every():
            source = HOME / "kernels" / backend.language / problem
            if source.is_dir():
                shutil.copytree(source, here / "kernels" / backend.language / problem)
    (here / "config.yaml").write_text(_PATHS)
    return locate_files(str(here / "config.yaml"))


def _problem(settings: Locations, name: str) -> tuple[dict[Path, str], list[str]]:
    problems = settings.path("problems")
    evaluator = problems.parent / "submissions" / "eval.py"
    if not evaluator.is_file():
        evaluator = problems / "eval.py"
    files = skeleton.problem_files(name, problems, evaluator)
    problems.mkdir(parents=True, exist_ok=True)
    for copy, original in ((problems / "utils.py", HOME / "problems" / "utils.py"),
                           (evaluator, HOME / "submissions" / "eval.py")):
        if not copy.is_file():           # a folder of problems of one's own: each stages these two
            shutil.copyfile(original, copy)
    kernel = settings.path("kernels") / "cpu" / name / "naive.cpp"
    text = (skeleton.HOME / "kernel.cpp.in").read_text(encoding="utf-8").replace("@NAME@", name)
    return {**files, kernel: text}, [
        f"audit --problem {name}", f"run --problem {name} --backend cpu", f"new kernel {name}/mine --backend cuda"]


def _kernel(settings: Locations, options: argparse.Namespace) -> tuple[dict[Path, str], list[str]]:
    problem, slash, variant = options.name.partition("/")
    if not slash or not variant:
        raise SelectionError(f"{options.name!r}: a kernel is named PROBLEM/NAME", 2)
    names = options.backend or []
    if len(names) != 1:
        raise SelectionError(f"new kernel needs one --backend: {', '.join(backends.names())}", 2)
    folders = discover(*settings.problems)
    if problem not in folders:
        raise SelectionError(f"unknown problem {problem!r}; there are: {', '.join(folders) or 'none'}", 2)
    _ = Problem(folders[problem]).native
    backend = backends.get(names[0])
    path, text, start = skeleton.kernel_file(
        settings.path("kernels").parent, problem, variant, backend, options.like)
    if not options.json:
        print(f"{problem}/{variant} starts from {start}")
    return {path: text}, [f"build --kernel {problem}/{variant}", f"run --kernel {problem}/{variant} --mode test"]


def _shown(path: Path) -> str:
    """``path`` from here, where it lies below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
