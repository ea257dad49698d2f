# SPDX-License-Identifier: MIT
"""``import``: records that another machine has made, into the database here."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scoring.config.load import locate_files
from scoring.output import terminal
from scoring.output.table import use_color, width_of
from scoring.output.units import plural
from scoring.record import ExitCode, dumps
from scoring.store.record_files import brought, read_records
from scoring.store.store import Store


def run(options: argparse.Namespace) -> int:
    store = Store(locate_files(options.config).database)
    found = []
    for name in options.files:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        found += read_records(text.splitlines(), "stdin" if name == "-" else name)
    records = [brought(record, options.host or "") for record in found]
    new = [record for record in records if store.get(record.id) is None]
    for record in records:
        store.add(record)
    if options.json:
        for record in records:
            print(dumps(record))
        return ExitCode.OK
    if not records:
        print(f"no records in {', '.join(options.files)}", file=sys.stderr)
        return ExitCode.NOTHING
    print(terminal.table(records, color=use_color(sys.stdout), width=width_of(sys.stdout)))
    known = len(records) - len(new)
    print(f"kept {plural(len(new), 'record')} in {store.path}" + (f"; {known} were there already" if known else ""))
    return ExitCode.OK

