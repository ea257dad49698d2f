# SPDX-License-Identifier: MIT
"""A season as one file: every table but sessions, workers and leases, as lines of JSON in a gzip file.

Tokens travel as their digests, so that people keep theirs. Boards keep their secrets: the file is for organisers.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

from sqlalchemy import Table, func, insert, inspect, select, text

from scoring.run.select import SelectionError
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Base, Source, Submission, Token

FORMAT = "warpwave-season/1"
_LEFT_OUT = ("lease", "worker")


def _tables() -> list[Table]:
    return [table for table in Base.metadata.sorted_tables if table.name not in _LEFT_OUT]


def export(database: Database, path: Path) -> dict[str, int]:
    """Write all that a season is to ``path``, in one consistent view; how many rows of each table."""
    counts: dict[str, int] = {}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as raw, gzip.open(raw, "wt", encoding="ascii") as file, \
                database.read() as session:
            file.write(json.dumps({"format": FORMAT}) + "\n")
            for table in _tables():
                query = select(table).order_by(*table.primary_key.columns)
                if table is Token.__table__:
                    query = query.where(table.c.kind == "cli")
                counts[table.name] = 0
                for row in session.execute(query).mappings():
                    file.write(json.dumps([table.name, _plain(table, dict(row))]) + "\n")
                    counts[table.name] += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return counts


def load(database: Database, path: Path) -> dict[str, int]:
    """Fill an empty database from a file that ``export`` wrote; all of it or nothing. What was running is queued.

    Raises ``SelectionError`` for another kind of file, or a database that has submissions or accounts.
    """
    counts = {table.name: 0 for table in _tables()}
    tables = {table.name: table for table in _tables()}
    try:
        with gzip.open(path, "rt", encoding="ascii") as file, database.write() as session:
            if json.loads(file.readline() or "{}").get("format") != FORMAT:
                raise SelectionError(f"{path} is no season: it does not begin with {FORMAT}", 2)
            if used := [name for name in ("account", "submission", "board")
                        if session.scalar(select(func.count()).select_from(tables[name]))]:
                raise SelectionError(f"the database has rows in {', '.join(used)}: import into a new one", 2)
            for line in file:
                name, row = json.loads(line)
                table = tables[name]
                if table is Submission.__table__ and row["status"] == "running":
                    row["status"], row["attempts"] = "queued", 0
                session.execute(insert(table).values(**_restored(table, row)))
                counts[name] += 1
            if not database.sqlite:
                for table in tables.values():
                    _continue_numbers(session, table)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise SelectionError(f"{path} cannot be imported: {error!r}", 2) from error
    return counts


def _continue_numbers(session: Any, table: Table) -> None:
    """PostgreSQL's next number of a table: behind those that were imported."""
    column = inspect(table).primary_key.columns.values()[0]
    if column.name == "id":
        session.execute(text(
            f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), COALESCE(MAX(id), 0) + 1, false) "
            f"FROM {table.name}"))


def _plain(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    if table is Source.__table__:
        row["content"] = base64.b64encode(row["content"]).decode()
    return row


def _restored(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    if table is Source.__table__:
        row["content"] = base64.b64decode(row["content"])
    return row
