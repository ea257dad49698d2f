# SPDX-License-Identifier: MIT
"""``python -m tests.redteam``: judge the red team's files, show a table by class and the two figures.

Exit code 0 if no cheat was rewarded and no honest file rejected, 1 otherwise, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from tests.redteam.entries import Result, entries, figures
from tests.redteam.suite import run_all, select_entries


def row(result: Result) -> str:
    """One line of the table."""
    last = result.trials[-1] if result.trials else None
    ratio = "/".join(f"{trial.ratio:.2f}" for trial in result.trials if trial.ratio is not None)
    told = result.why or (last.status if last else "")
    detail = "; ".join(evidence for trial in result.trials for evidence in trial.evidence)
    if not detail and last is not None and not last.passed:
        lines = last.message.splitlines()
        detail = lines[-1] if lines else ""
    mark = "!!" if result.failed else "  "
    return f"{mark}{result.entry.name:<38} {result.outcome:<12} {ratio:<14} {told:<18} {detail[:90]}".rstrip()


def table(results: list[Result]) -> str:
    """Rows by class, honest ones last."""
    def key(result: Result) -> tuple[bool, str]:
        return result.entry.honest, result.entry.kind

    lines = []
    for (honest, kind), group in groupby(sorted(results, key=key), key):
        lines += [f"{'honest' if honest else 'cheats'}: {kind}", *map(row, group)]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.redteam", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="*", metavar="GLOB", help="files by folder/name, or by class")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="judging processes; on a GPU they take turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all trials, to keep")
    options = parser.parse_args(arguments)
    chosen = select_entries(entries(), options.device, options.only)
    if not chosen:
        parser.error(f"no file for {options.device} matches {options.only!r}")
    results = run_all(chosen, options.device, options.jobs, lambda result: print(row(result), file=sys.stderr))
    print(table(results))
    print(figures(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1, default=str))
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
