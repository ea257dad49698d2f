# SPDX-License-Identifier: MIT
"""A user of its own for every worker of a judge that is root: one that owns nothing and runs nothing else."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

HIGH = range(0x70000000, 0x77FF0000)      # no distribution and no service gives ids from here to anybody
LOW = range(61184, 65520)                 # where only 65536 ids are mapped: those systemd lends to passing services


def spare() -> int | None:
    """A user id that no process runs under, None where this process may not change users."""
    if os.geteuid() != 0:
        return None
    for wanted in (HIGH, LOW):
        if all(_is_mapped(wanted, Path(f"/proc/self/{kind}_map")) for kind in ("uid", "gid")):
            for _attempt in range(20):
                uid = random.SystemRandom().choice(wanted)
                if not processes(uid):
                    return uid
    return None


def processes(uid: int) -> list[int]:
    """Processes that run as ``uid``."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"\nUid:\t{uid}\t" in (path / "status").read_text():
                found.append(int(path.name))
    return found


def threads(uid: int) -> int:
    """How many threads run as ``uid``: what a limit on processes counts."""
    count = 0
    for process in processes(uid):
        with contextlib.suppress(OSError):
            count += sum(1 for _thread in Path(f"/proc/{process}/task").iterdir())
    return count


def _is_mapped(wanted: range, table: Path) -> bool:
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return True
    spans = [(int(line.split()[0]), int(line.split()[2])) for line in lines]
    return any(first <= wanted[0] and wanted[-1] < first + count for first, count in spans)
