# SPDX-License-Identifier: MIT
"""Names that carry who made a thing, so that what a killed judge left behind can be told from what is in use."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")


def own() -> str:
    """This process: its id, when it started (ticks since boot, so that a reused id differs) and whose ids they are."""
    pid = os.getpid()
    return f"{pid}-{_started(pid)}-{_namespace()}"


def is_gone(name: str) -> bool:
    """Whether ``name`` begins as ``own`` names a process, and that process no longer runs.

    False for a process of another process-id namespace (another container): nothing is known about it here.
    """
    match = _NAME.match(name)
    return match is not None and int(match[3]) == _namespace() and _started(int(match[1])) != int(match[2])


def _started(pid: int) -> int:
    """When a process started, -1 if there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[19]) if fields[0] != "Z" else -1


def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
