# SPDX-License-Identifier: MIT
"""``leaderboard``: the best score kept of every kernel, per problem and GPU."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from scoring import config, render
from scoring.model import ExitCode
from scoring.store import Store
from scoring.tables import use_color


def run(options: argparse.Namespace) -> int:
    settings = config.load(file=options.config)
    rows = Store(settings.database).leaderboard(options.problem, options.gpu)
    if options.json:
        for row in rows:
            print(json.dumps(dataclasses.asdict(row)))
    elif rows:
        fmt = "github" if options.markdown else "simple"
        print(render.leaderboard(rows, fmt, color=use_color(sys.stdout)))
    if not rows:
        print(f"no scores in {settings.database} yet; `python -m scoring run` makes some", file=sys.stderr)
        return ExitCode.NOTHING
    return ExitCode.OK
