# SPDX-License-Identifier: MIT
"""Run a compiler: its whole process group dies with it, its output goes to a file, nothing is left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_running: set[subprocess.Popen[bytes]] = set()
_confined: list[Confined] = []           # by ``confine``


@dataclass(frozen=True)
class Finished:
    """How a command ended. ``returncode`` is None when it was killed at its time limit."""

    returncode: int | None
    output: str          # stdout and stderr, in the order written
    seconds: float


class Confined(Protocol):
    """Something that runs a compiler where it can do no harm, such as a sandbox."""

    def run(
        self, argv: Sequence[str], cwd: Path, timeout: float, environment: Mapping[str, str], readable: Sequence[Path],
        writable: Path,
    ) -> tuple[int | None, bytes]:
        """The exit status (None: killed after ``timeout`` seconds) and what it printed. It must be able to read the
        ``readable`` files and folders besides the system's, and to write to the folder ``writable``. Raises
        ``OSError``."""

    def stop(self) -> None:
        """Kill all that run."""


def confine(where: Confined | None) -> None:
    """Run what compiles others' sources in ``where`` from now on (None: as every other program)."""
    _confined[:] = [where] if where is not None else []


def compile_untrusted(
    argv: Sequence[str], cwd: Path, timeout: float, environment: Mapping[str, str], readable: Sequence[Path],
    build: Path, log: Path, keep_open: Sequence[int] = (),
) -> Finished:
    """Run a compiler on a source that somebody else wrote, confined if ``confine`` said where; it writes below
    ``build``.

    Raises ``OSError`` if it cannot be started, or if it left anything but files and folders.
    """
    if not _confined:
        return run(argv, log, cwd, timeout, environment, keep_open)
    started = time.monotonic()
    code, printed = _confined[0].run(argv, cwd, timeout, {"LC_ALL": "C", **environment}, readable, build)
    for path in build.rglob("*"):
        if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISDIR(mode):
            path.unlink()
            raise OSError(errno.EPERM, f"it left {path.name}, which is neither a file nor a folder")
    return Finished(code, printed.decode(errors="replace"), time.monotonic() - started)


def run(
    argv: Sequence[str], log: Path, cwd: Path, timeout: float,
    environment: Mapping[str, str] | None = None, keep_open: Sequence[int] = (),
) -> Finished:
    """Run ``argv`` in ``cwd`` with at most ``timeout`` seconds; ``environment`` is laid over this process's own.

    Output goes to the file ``log`` rather than to a pipe, so no child that outlives its parent can block the reader.
    ``keep_open`` are file descriptors the children inherit. Raises ``OSError`` if the program cannot be started.
    """
    env = {**os.environ, "LC_ALL": "C", **(environment or {})}   # messages in English: they get parsed
    started = time.monotonic()
    with log.open("wb") as stdout:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT, cwd=cwd, env=env,
            start_new_session=True, pass_fds=tuple(keep_open),
        )
        _running.add(process)
        returncode: int | None = None
        try:
            returncode = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:   # also on KeyboardInterrupt; and a compiler that died may have left children
            _running.discard(process)
            _kill_group(process)
    return Finished(returncode, log.read_text(errors="replace"), time.monotonic() - started)


def stop() -> None:
    """Kill every command that ``run`` waits for in any thread: each ends as a compiler that was killed."""
    for where in _confined:
        where.stop()
    for process in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def ask(argv: Sequence[str], timeout: float = 20.0) -> str | None:
    """The output of a short question such as ``nvcc --version``; None if it cannot be run, fails or takes too long.

    The answer to "is this tool here and usable"; never raises for a tool that is not.
    """
    try:
        answer = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
            env={**os.environ, "LC_ALL": "C"}, check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.decode(errors="replace") if answer.returncode == 0 else None


def processors(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """How many commands can compute at the same time: the processors this process is bound to, or its group's share.

    A container with two of a server's 64 processors sees 64 and is held back by its control group; the files below
    ``groups`` (of version 2, then 1) say by how much.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = "max", "0"
    with contextlib.suppress(OSError, ValueError):
        quota, period = (groups / "cpu.max").read_text().split()
    with contextlib.suppress(OSError):
        quota = (groups / "cpu" / "cpu.cfs_quota_us").read_text().strip()
        period = (groups / "cpu" / "cpu.cfs_period_us").read_text().strip()
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        return max(1, min(bound, -(-int(quota) // int(period))))
    return bound


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)   # start_new_session: the group's id is the process's
    except ProcessLookupError:
        return                                   # the whole group has ended
    finally:
        process.wait()
