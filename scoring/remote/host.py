# SPDX-License-Identifier: MIT
"""A bundle on another machine, by ssh: copied there, started, followed until it ends, and found again after a loss.

$WARPWAVE_SSH replaces the command ``ssh``, with its options. Each step is one call of ssh that needs no terminal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scoring.record import ExitCode
from scoring.run.select import SelectionError

VARIABLE = "WARPWAVE_SSH"
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5",
            "-o", "ServerAliveCountMax=3")
_FOLDER = '"${XDG_CACHE_HOME:-$HOME/.cache}/warpwave/jobs"'
_LOST = 255                  # ssh's own exit code: it could not connect, or the connection broke
_NOT_AGAIN = ("Permission denied", "Host key verification failed", "Could not resolve hostname")
PATIENCE = 600.0             # seconds without a connection after which nobody waits any more
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)


class Lost(Exception):
    """There is no connection, and trying again may help."""


class Host:
    """One job's folder on one machine. ``python`` is the Python there that has torch."""

    def __init__(self, name: str, python: str, job: str):
        if not name or name.startswith("-") or re.search(r"\s", name):
            raise SelectionError(f"--host {name!r}: user@machine is expected, or a name of ~/.ssh/config", 2)
        self.name, self.python, self.job = name, python, job
        self._ssh = [*shlex.split(os.environ.get(VARIABLE) or "ssh"), *_OPTIONS, name]

    def exists(self) -> bool:
        """Whether the job was copied there."""
        return self._shell(f"test -f {self._place}/ready", good=(0, 1)) == 0

    def remove(self) -> None:
        """Delete the job's folder there."""
        self._shell(f"rm -rf {self._place}")

    def copy(self, packed: bytes, done: bool) -> None:
        """Unpack a .tar.gz in the job's folder; ``done`` after the last one."""
        mark = " && touch ready" if done else ""
        self._shell(f"mkdir -p {self._place} && cd {self._place} && tar xzf -{mark}", packed)

    def probe(self) -> dict[str, Any]:
        """What is there (``scoring.far.probe``). Raises ``SelectionError`` (4) if something is missing."""
        found = self._ask("probe")
        if missing := found.get("missing"):
            raise SelectionError(f"{self.name}: {missing}", ExitCode.UNAVAILABLE)
        return found

    def start(self) -> str:
        """``started``, or ``running`` or ``done`` if there was nothing to start."""
        return str(self._ask("start")["state"])

    def state(self) -> str:
        """``running``, ``done``, or ``ended`` before its end."""
        return str(self._ask("state")["state"])

    def stop(self) -> None:
        """End the run there; it keeps what is judged."""
        self._shell(self._command("stop"))

    def follow(self, tell: Callable[[str], None], patience: float | None = None) -> Iterator[dict[str, Any]]:
        """The news of ``scoring.far.follow`` until the run ends; over as many connections as it takes.

        Raises ``Lost`` after ``patience`` seconds (``PATIENCE``) without one.
        """
        at, since, attempt = {"records": 0, "log": 0}, time.monotonic(), 0
        while True:
            process = subprocess.Popen(
                [*self._ssh, self._command("follow", str(at["records"]), str(at["log"]))], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    news = _news(line)
                    since, attempt = time.monotonic(), 0
                    at |= {name: news[name] for name in at if name in news}
                    yield news
                    if "exit" in news or "died" in news:
                        return
            finally:
                process.kill()
                _out, said = process.communicate()
            if _hopeless(said, time.monotonic() - since, PATIENCE if patience is None else patience):
                raise Lost(f"{self.name}: no connection ({_last(said)})")
            pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
            tell(f"{self.name}: connection lost ({_last(said)}); again in {pause:.0f} s, the run goes on there")
            time.sleep(pause)
            attempt += 1

    @property
    def _place(self) -> str:
        return f"{_FOLDER}/{self.job}"

    def _command(self, *words: str) -> str:
        """``run.py`` with arguments, in its folder, for whatever shell logs in there."""
        inner = f"cd {self._place} && exec {shlex.quote(self.python)} run.py {' '.join(words)}"
        return f"sh -c {shlex.quote(inner)}"

    def _ask(self, word: str) -> dict[str, Any]:
        done = self._call(self._command(word), b"")
        if done.returncode:
            raise self._failure(done)
        return _news(done.stdout.decode(errors="replace").strip().rpartition("\n")[2])

    def _shell(self, script: str, given: bytes = b"", good: Sequence[int] = (0,)) -> int:
        command = script if script.startswith("sh -c ") else f"sh -c {shlex.quote(script)}"
        done = self._call(command, given)
        if done.returncode not in good:
            raise self._failure(done)
        return done.returncode

    def _call(self, command: str, given: bytes) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run([*self._ssh, command], input=given, capture_output=True, check=False)
        except OSError as error:
            raise SelectionError(f"{self._ssh[0]}: {error.strerror}; --host needs ssh", ExitCode.UNAVAILABLE) from error

    def _failure(self, done: subprocess.CompletedProcess[bytes]) -> SelectionError:
        said = _last(done.stderr.decode(errors="replace"))
        hint = ""
        if done.returncode == _LOST:
            hint = f"; `ssh {self.name}` must log in without a prompt, with a key or an agent"
        elif done.returncode == 127:
            hint = "; --host-python names a Python there that has torch"
        return SelectionError(f"{self.name}: {said}{hint}", ExitCode.UNAVAILABLE)


def _hopeless(said: str, silent: float, patience: float) -> bool:
    """Whether nobody should try to connect again, ``silent`` seconds after the last news."""
    return silent > patience or any(words in said for words in _NOT_AGAIN)


def _news(line: str) -> dict[str, Any]:
    """One line of ``run.py``; what the login shell prints besides is nobody's news."""
    try:
        news = json.loads(line)
    except ValueError:
        return {}
    return news if isinstance(news, dict) else {}


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
