# SPDX-License-Identifier: MIT
"""``report``: one self-contained HTML page of the records kept."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from scoring import config
from scoring.model import ExitCode
from scoring.store import Store
from scoring.verbs.leaderboard import nothing


def run(options: argparse.Namespace) -> int:
    settings = config.locate(options.config)
    store = Store(settings.kept)
    records = store.records(problem=options.problem, limit=options.limit)
    if not records:
        print(nothing(store, "records", options.problem), file=sys.stderr)
        return ExitCode.NOTHING
    from scoring import report

    path = Path(options.output) if options.output else settings.path("report")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.page(records), encoding="utf-8")
    if options.json:
        print(json.dumps({"schema": 1, "report": str(path), "records": len(records)}))
    else:
        print(f"wrote {path} ({len(records)} records)")
    return ExitCode.OK
