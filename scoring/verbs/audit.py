# SPDX-License-Identifier: MIT
"""``audit``: prove that wrong answers are refused, case by case; a tolerance that checks nothing fails here."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
from collections.abc import Sequence

from scoring.config.load import load_config
from scoring.judge.audit import HONEST, AuditRow, audit
from scoring.output.units import plural
from scoring.record import Case, ExitCode
from scoring.run import targets
from scoring.run.progress import Progress
from scoring.run.select import SelectionError


def run(options: argparse.Namespace) -> int:
    settings = load_config({"problems": options.problem}, options.config)
    _check_device(options.device)
    selected = targets.select_problems(settings, settings.settings.problems)
    problems = [problem for problem in selected if (problem.path / "mutants.py").is_file()]

    def wanted(case: Case) -> bool:
        return not options.case or any(fnmatch.fnmatch(case.name, pattern) for pattern in options.case)

    chosen = [(problem, case) for problem in problems for case in problem.cases if wanted(case)]
    rows: list[AuditRow] = []
    with Progress(len(chosen), quiet=options.json, verbose=not options.json) as progress:
        for problem in problems:
            progress.stage(problem.name)
            for case in problem.cases:
                if not wanted(case):
                    continue
                progress.detail(f"{problem.name} {case.name}")
                found = audit([problem], lambda other, case=case: other is case, options.device)  # type: ignore[misc]
                rows += found
                for row in found if options.json else ():
                    print(json.dumps({"schema": 1, **dataclasses.asdict(row), "good": row.good}), flush=True)
                progress.advance()
    if not rows:
        raise SelectionError("no case of a problem with mutants.py matches")
    if not options.json:
        print(table(rows))
    return ExitCode.OK if all(row.good for row in rows) else ExitCode.FAILED


def _check_device(name: str | None) -> None:
    """Refuse a device that torch does not know (2) or that is not here (4); raises ``SelectionError``."""
    if name is None:
        return
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise SelectionError(f"--device {name}: torch knows no such device; try cpu or cuda", 2) from None
    here = {"cpu": 1, "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0}
    if device.type not in here:
        raise SelectionError(f"--device {name}: inputs are made on cpu or cuda alone", 2)
    if (device.index or 0) >= here[device.type]:
        raise SelectionError(f"--device {name}: not here; see `python -m scoring doctor`", 4)


def table(rows: Sequence[AuditRow]) -> str:
    """One line per problem and answer; then every verdict that should have been the other one."""
    from tabulate import tabulate

    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        entry = counts.setdefault((row.problem, row.mutant), [0, 0])
        entry[0] += 1
        entry[1] += row.good
    lines = [
        (problem, mutant, total, good, "passed" if mutant == HONEST else "refused", "" if good == total else "BAD")
        for (problem, mutant), (total, good) in counts.items()
    ]
    bad = [row for row in rows if not row.good]
    shown = len(lines[0]) if bad else -1         # without a column that says nothing
    text = tabulate(
        [line[:shown] for line in lines], disable_numparse=True,
        headers=["problem", "answer", "cases", "as it should be", "which is", ""][:shown],
        colalign=("left", "left", "right", "right", "left", "left")[:shown],
    )
    details = "".join(
        f"\n  {r.problem} {r.case}: {r.mutant} was {'refused' if r.refused else 'passed'}; {r.detail}" for r in bad
    )
    cases = len({(row.problem, row.case) for row in rows})
    verdict = f"{plural(len(rows), 'answer')} on {plural(cases, 'case')}, {len(bad)} judged wrongly{details}"
    return f"{text}\n\n{verdict}"
