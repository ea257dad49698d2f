# SPDX-License-Identifier: MIT
"""Find and end processes that left their worker's session: daemons, compile servers, fork bombs."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from scoring.sandbox.environment import MARK


def marked(mark: str) -> list[int]:
    """Processes whose environment carries a worker's mark. (One that wiped its environment is not found.)"""
    wanted = f"{MARK}={mark}".encode()
    return [process for process, found in marks() if found == wanted]


def marks() -> Iterable[tuple[int, bytes]]:
    """(process, its entry ``MARK=…``) of all processes that have one and that we may look at."""
    start = f"{MARK}=".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for entry in path.read_bytes().split(b"\0"):
                if entry.startswith(start):
                    yield int(path.parent.name), entry
                    break


def kill(find: Callable[[], list[int]], attempts: int = 100) -> bool:
    """End all processes that ``find`` finds, until it finds none twice; whether that came to be.

    First they are stopped and may have no more children, or a fork bomb would be faster than we are.
    """
    quiet = 0
    for _attempt in range(attempts):
        found = [process for process in find() if process != os.getpid()]
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGSTOP)
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(process, resource.RLIMIT_NPROC, (0, 0))
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        if quiet == 2:               # once is not enough: a process that is just being started shows no environment
            return True
        time.sleep(0.02)
    return False
