# SPDX-License-Identifier: MIT
"""``leaderboard``: the best score kept of every kernel, per problem and GPU."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from scoring.config.load import locate_files
from scoring.output import terminal
from scoring.output.table import use_color, width_of
from scoring.record import SCHEMA, ExitCode
from scoring.store.store import Store


def run(options: argparse.Namespace) -> int:
    settings = locate_files(options.config)
    store = Store(settings.kept)
    rows = store.leaderboard(options.problem, options.gpu)
    if options.json:
        for row in rows:
            print(json.dumps({"schema": SCHEMA, **dataclasses.asdict(row)}))
    elif rows:
        fmt = "github" if options.markdown else "simple"
        print(terminal.leaderboard(rows, fmt, color=use_color(sys.stdout), width=width_of(sys.stdout)))
    if not rows:
        print(nothing(store, "scores", options.problem or options.gpu), file=sys.stderr)
        return ExitCode.NOTHING
    return ExitCode.OK


def nothing(store: Store, what: str, selected: object) -> str:
    """Why there is nothing to show: an empty database, one that has others, or one of runs without a score."""
    if not store.records(limit=1):
        return f"no {what} in {store.path} yet; `python -m scoring run` makes some"
    if selected:
        return f"no {what} in {store.path} match; it has others"
    return (f"no {what} in {store.path} yet: a score is the time of all benchmark cases, from a run that passed them "
            "(`python -m scoring run`, not `--mode test`)")
