# SPDX-License-Identifier: MIT
"""``list``: problems with their cases, kernels with their archs, backends. Reads text only, so it answers at once."""

from __future__ import annotations

import argparse
import fnmatch
import json

import backends
from backends.base import SourceError
from backends.source import KernelSource, kernels
from scoring import config
from scoring.model import ExitCode
from scoring.problem import Problem, discover


def run(options: argparse.Namespace) -> int:
    settings = config.load(file=options.config)
    languages = {name: backends.get(name).language for name in options.backend or backends.names()}
    patterns = options.problem or ["*"]
    found = {
        name: Problem(path) for name, path in discover(settings.path("problems")).items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }
    rows, broken = [], []
    root = settings.path("kernels").parent
    for backend, language in languages.items():
        for path in kernels(root, language):
            if path.parent.name in found:
                try:
                    rows.append((backend, KernelSource.read(path, root)))
                except SourceError as error:
                    broken.append(str(error))
    if options.json:
        print(json.dumps({
            "schema": 1,
            "problems": [
                {"name": name, "tests": len(p.tests), "benchmarks": len(p.benchmarks), "ranking_by": p.ranking_by,
                 "cases": [case.name for case in p.cases]} for name, p in found.items()
            ],
            "kernels": [
                {"backend": backend, "problem": s.problem, "variant": s.variant, "arches": list(s.arches),
                 "summary": s.summary, "tunables": {k: list(v) for k, v in s.tunables.items()}} for backend, s in rows
            ],
            "backends": list(languages), "errors": broken,
        }))
    else:
        from tabulate import tabulate

        print(tabulate(
            [(name, len(p.tests), len(p.benchmarks), p.ranking_by, _first_line(p)) for name, p in found.items()],
            headers=["problem", "tests", "benchmarks", "ranking", "what"], disable_numparse=True,
        ))
        print()
        print(tabulate(
            [(backend, s.problem, s.variant, " ".join(s.arches) or "any", s.summary) for backend, s in rows],
            headers=["backend", "problem", "kernel", "archs", "what"], disable_numparse=True,
        ))
        for line in broken:
            print(f"error: {line}")
    if broken:
        return ExitCode.USAGE
    return ExitCode.OK if found else ExitCode.NOTHING


def _first_line(problem: Problem) -> str:
    return next((line.strip() for line in problem.task.description.splitlines() if line.strip()), "")[:80]


