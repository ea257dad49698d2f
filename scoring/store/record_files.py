# SPDX-License-Identifier: MIT
"""Records outside the database: files of JSON lines, and records that another machine has made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from scoring.record import Record
from scoring.store.store import StoreError


def read_records(lines: Iterable[str], where: str) -> list[Record]:
    """The records of JSON lines, of each id the last one; ``where`` names the file in messages.

    Raises ``StoreError`` with file and line for anything else.
    """
    found: dict[str, Record] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                record = Record.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreError(f"{where}:{number}: is no record: {type(error).__name__}: {error}") from error
            found.pop(record.id, None)
            found[record.id] = record
    return list(found.values())


def brought(record: Record, host: str = "", names: Mapping[str, tuple[str, ...]] | None = None) -> Record:
    """The record with the machine that it came from: ``host``, or what that machine calls itself.

    ``names``: what words of the command that repeats it are called here; without them there is no such command.
    """
    repeat = tuple(word for each in record.facts.repeat for word in (names or {}).get(each, (each,)))
    machine = host or record.facts.host or str(record.system.get("host") or "another machine")
    return replace(record, facts=replace(record.facts, host=machine, repeat=repeat if names is not None else ()))
