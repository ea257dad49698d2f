# SPDX-License-Identifier: MIT
"""``report``: one self-contained HTML page of the records kept."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from scoring.config.load import locate_files
from scoring.output import units
from scoring.record import ExitCode, Record
from scoring.store.store import Store
from scoring.verbs.leaderboard import nothing


def run(options: argparse.Namespace) -> int:
    settings = locate_files(options.config)
    store = Store(settings.kept)
    records = store.records(problem=options.problem, limit=options.limit)
    if not records:
        print(nothing(store, "records", options.problem), file=sys.stderr)
        return ExitCode.NOTHING
    from scoring.output import html

    path = Path(options.output) if options.output else settings.path("report")
    pages: dict[str, str] = {}
    if options.inspect:
        pages = _pages(html.current(records), path, options)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html.page(records, pages=pages), encoding="utf-8")
    if options.json:
        print(json.dumps({"schema": 1, "report": str(path), "records": len(records), "pages": pages}))
    else:
        more = f", {units.plural(len(pages), 'page')} of machine code" if options.inspect else ""
        print(f"wrote {path} ({len(records)} records{more})")
    return ExitCode.OK


def _pages(records: Sequence[Record], report: Path, options: argparse.Namespace) -> dict[str, str]:
    """Write the pages of machine code into a folder beside the report: names by the records' ids.

    A record of another source than the checkout has today gets none; why is told on stderr.
    """
    import backends
    from backends.errors import BackendError
    from scoring.config.load import load_config
    from scoring.output import html
    from scoring.run import inspected

    settings = load_config({}, options.config)
    backends.use_cache(settings.cache)
    folder, found = report.with_name(f"{report.stem}.code"), {}
    for record in records:
        name = re.sub(r"[^\w.=-]+", "-", f"{record.problem}-{record.kernel}-{record.gpu}") + ".html"
        try:
            text = inspected.page_of(settings, record)
        except BackendError as error:
            text = str(error).partition("\n")[0]
            print(f"no page for {record.problem} {record.kernel} on {record.gpu}: {text}", file=sys.stderr)
            continue
        html.save(folder / name, text)
        found[record.id] = f"{folder.name}/{name}"
    return found
