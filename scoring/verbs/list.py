# SPDX-License-Identifier: MIT
"""``list``: problems with their cases, kernels with their archs, backends. Reads text, and the records of
kernels of which somebody expects something, so it answers at once.

A file that is wrong is named, and everything else is listed.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import backends
from backends.errors import SourceError
from backends.source import KernelSource, by_step, kernels
from scoring.config.load import locate_files
from scoring.output import coverage, expectations
from scoring.output.table import Style
from scoring.output.text import one_line
from scoring.popcorn.task import TaskError
from scoring.problem import Problem, ProblemError, discover
from scoring.record import ExitCode, Record
from scoring.run.select import problem_names
from scoring.store.store import Store, StoreError

_WIDTH = 70             # columns of a description, where the terminal has them
_NARROWEST = 16


def run(options: argparse.Namespace) -> int:
    settings = locate_files(options.config)
    languages = {name: backends.get(name).language for name in options.backend or backends.names()}
    homes = settings.problems
    folders = discover(*homes)
    root = settings.path("kernels").parent
    names = problem_names(folders, homes, options.problem or ["*"])
    if not options.problem:      # a further folder lends problems to kernels here: the others are not of this root
        solved = {path.parent.name for path in kernels(root)}
        names = [name for name in names if folders[name].parent == homes[0] or name in solved]
    found: dict[str, Problem] = {}
    broken = []
    for name in names:
        try:
            found[name] = Problem(folders[name])
        except (TaskError, ProblemError) as error:
            broken.append(str(error))
    rows = []
    for backend, language in languages.items():
        for path in kernels(root, language):
            if path.parent.name in names:
                try:
                    rows.append((backend, KernelSource.read(path, root)))
                except SourceError as error:
                    broken.append(str(error))
    rows.sort(key=lambda row: (list(languages).index(row[0]), row[1].problem, by_step(row[1])))
    wanted = [(f"{backend}/{source.variant}", source) for backend, source in rows if source.expect]
    records: list[Record] = []
    if wanted and not options.json:
        try:
            records = Store(settings.kept).records(problem=sorted({source.problem for _kernel, source in wanted}))
        except StoreError as error:
            broken.append(str(error))
    if options.json:
        print(json.dumps(_document(found, rows, list(languages), broken)))
    else:
        if names:
            print(_tables(found, rows))
        if wanted:
            print("\n" + expectations.table([row for kernel, source in wanted for row in expectations.rows(
                source.problem, kernel, source.expect, records)], Style(width=10_000)))
        for line in broken:
            print(f"error: {line}", file=sys.stderr)
    if broken:
        return ExitCode.USAGE
    if not names:
        where = " and ".join(map(str, homes))
        print(f"no problem in {where} matches" if folders else f"no problems in {where}", file=sys.stderr)
        return ExitCode.NOTHING
    return ExitCode.OK


def _document(
    found: dict[str, Problem], rows: Sequence[tuple[str, KernelSource]], names: list[str], broken: list[str]
) -> dict[str, Any]:
    return {
        "schema": 1,
        "problems": [
            {"name": name, "tests": len(p.tests), "benchmarks": len(p.benchmarks), "ranking_by": p.ranking_by,
             "cases": [case.name for case in p.cases],
             "small": {device: [case.name for case in cases] for device, cases in p.small.items()}}
            for name, p in found.items()
        ],
        "kernels": [
            {"backend": backend, "problem": s.problem, "variant": s.variant, "arches": list(s.arches),
             "summary": s.summary, "step": str(s.step or ""), "flags": list(s.flags), "expect": list(s.expect),
             "tunables": {k: list(v) for k, v in s.tunables.items()}} for backend, s in rows
        ],
        "backends": names, "errors": broken,
    }


def _tables(found: dict[str, Problem], rows: Sequence[tuple[str, KernelSource]]) -> str:
    from scoring.output.table import Column, draw, total_width, width_of

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
        Column("step", [str(s.step or "") for s in sources], right=False),
    ], [s.summary for s in sources]) if rows else "no kernels"
    tuned = [row for row in rows if row[1].tunables]
    names = [Column("backend", [backend for backend, _source in tuned]), Column("", [s.name for _backend, s in tuned])]
    room = max(_NARROWEST, width_of(sys.stdout) - total_width(names) - 2)
    lines = [line for backend, source in tuned for line in _tunables(backend, source, room)]
    tunables = draw([
        Column("backend", [backend for backend, _name, _values in lines], right=False),
        Column("kernel", [name for _backend, name, _values in lines], right=False),
        Column("tunables (first: default)", [values for *_names, values in lines], right=False),
    ], style) if tuned else ""
    covered = coverage.table(
        list(found), [(backend, s.problem, s.variant, s.arches) for backend, s in rows]) if rows else ""
    return "\n\n".join(filter(None, (problems, listed, tunables, covered)))


def _tunables(backend: str, source: KernelSource, width: int) -> Iterator[tuple[str, str, str]]:
    """``TILE=64,128`` of every tunable, in lines of ``width``; the names stand before the first line."""
    text = " ".join(f"{name}={','.join(values)}" for name, values in source.tunables.items())
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        yield ("", "", line) if number else (backend, source.name, line)


def _short(text: str, width: int) -> str:
    """The first line that says something, cut between two words if it has to be."""
    line = next((one_line(line.strip()) for line in text.splitlines() if line.strip()), "")
    if len(line) <= width:
        return line
    return line[: line.rfind(" ", 0, width) if " " in line[:width] else width - 1].rstrip(" ,;:") + "…"
