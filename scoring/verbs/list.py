# SPDX-License-Identifier: MIT
"""``list``: problems with their cases, kernels with their archs, backends. Reads text only, so it answers at once.

A file that is wrong is named, and everything else is listed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import backends
from backends.base import SourceError
from backends.source import KernelSource, kernels
from scoring import config
from scoring.model import ExitCode
from scoring.popcorn import TaskError
from scoring.problem import Problem, ProblemError, discover
from scoring.selection import problem_names
from scoring.units import one_line

_WIDTH = 70             # columns of a description, where the terminal has them
_NARROWEST = 16


def run(options: argparse.Namespace) -> int:
    settings = config.locate(options.config)
    languages = {name: backends.get(name).language for name in options.backend or backends.names()}
    home = settings.path("problems")
    folders = discover(home)
    names = problem_names(folders, home, options.problem or ["*"])
    found: dict[str, Problem] = {}
    broken = []
    for name in names:
        try:
            found[name] = Problem(folders[name])
        except (TaskError, ProblemError) as error:
            broken.append(str(error))
    rows = []
    root = settings.path("kernels").parent
    for backend, language in languages.items():
        for path in kernels(root, language):
            if path.parent.name in names:
                try:
                    rows.append((backend, KernelSource.read(path, root)))
                except SourceError as error:
                    broken.append(str(error))
    if options.json:
        print(json.dumps(_document(found, rows, list(languages), broken)))
    else:
        if names:
            print(_tables(found, rows))
        for line in broken:
            print(f"error: {line}", file=sys.stderr)
    if broken:
        return ExitCode.USAGE
    if not names:
        print(f"no problem in {home} matches" if folders else f"no problems in {home}", file=sys.stderr)
        return ExitCode.NOTHING
    return ExitCode.OK


def _document(
    found: dict[str, Problem], rows: Sequence[tuple[str, KernelSource]], names: list[str], broken: list[str]
) -> dict[str, Any]:
    return {
        "schema": 1,
        "problems": [
            {"name": name, "tests": len(p.tests), "benchmarks": len(p.benchmarks), "ranking_by": p.ranking_by,
             "cases": [case.name for case in p.cases]} for name, p in found.items()
        ],
        "kernels": [
            {"backend": backend, "problem": s.problem, "variant": s.variant, "arches": list(s.arches),
             "summary": s.summary, "tunables": {k: list(v) for k, v in s.tunables.items()}} for backend, s in rows
        ],
        "backends": names, "errors": broken,
    }


def _tables(found: dict[str, Problem], rows: Sequence[tuple[str, KernelSource]]) -> str:
    from scoring.tables import Column, Style, draw, total_width, width_of

    style = Style(width=10_000)      # nothing is left out: there is no other place to look it up

    def described(columns: list[Column], texts: Sequence[str]) -> str:
        room = width_of(sys.stdout) - total_width(columns) - 2
        cells = [_short(text, max(_NARROWEST, min(_WIDTH, room))) for text in texts]
        return draw([*columns, Column("what", cells, right=False)], style)

    problems = described([
        Column("problem", list(found), right=False),
        Column("tests", [str(len(p.tests)) for p in found.values()]),
        Column("benchmarks", [str(len(p.benchmarks)) for p in found.values()]),
        Column("ranking", [p.ranking_by for p in found.values()], right=False),
    ], [p.task.description for p in found.values()])
    sources = [source for _backend, source in rows]
    listed = described([
        Column("backend", [backend for backend, _source in rows], right=False),
        Column("problem", [s.problem for s in sources], right=False),
        Column("kernel", [s.variant for s in sources], right=False),
        Column("archs", [" ".join(s.arches) or "any" for s in sources], right=False),
    ], [s.summary for s in sources]) if rows else "no kernels"
    tuned = [row for row in rows if row[1].tunables]
    tunables = draw([
        Column("backend", [backend for backend, _source in tuned], right=False),
        Column("kernel", [source.name for _backend, source in tuned], right=False),
        Column("tunables (the first value is the default)", [_tunables(s) for _backend, s in tuned], right=False),
    ], style) if tuned else ""
    return "\n\n".join(filter(None, (problems, listed, tunables)))


def _tunables(source: KernelSource) -> str:
    """``TILE=64,128``: the first value is the default."""
    return " ".join(f"{name}={','.join(values)}" for name, values in source.tunables.items())


def _short(text: str, width: int) -> str:
    """The first line that says something, cut between two words if it has to be."""
    line = next((one_line(line.strip()) for line in text.splitlines() if line.strip()), "")
    if len(line) <= width:
        return line
    return line[: line.rfind(" ", 0, width) if " " in line[:width] else width - 1].rstrip(" ,;:") + "…"
