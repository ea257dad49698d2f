# SPDX-License-Identifier: MIT
"""Where a leased job is judged: one interface, and its implementation by a process of this machine. The other one is
``on_ray``."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from backends._home import PACKAGES as ROOT

RAY_ADDRESS = "WARPWAVE_RAY"         # in the environment of a worker whose judge is on a Ray cluster
START_SECONDS = 120.0
_TICK = 0.25


class JudgeDied(Exception):
    """The judge ended without a record; the message says how."""


class Lost(Exception):
    """Nobody waits for the record any more: somebody cancelled, or another worker has the job."""


class Executor(Protocol):
    """Judges one job at a time."""

    def run(self, job: Mapping[str, Any], tick: Callable[[str], bool]) -> dict[str, Any]:
        """The last event of a job: ``done`` with a record, or ``broken`` with a text.

        ``tick`` is called several times a second with what happens; False from it ends the job with ``Lost``.
        Raises ``JudgeDied``.
        """

    def close(self) -> None:
        """End what runs."""


class LocalExecutor:
    """A judge process that stays, so that torch is loaded once; a new one after it was ended."""

    def __init__(self, config: str | None, threads: int | None = None):
        self._config = config
        self._threads = threads
        self._process: subprocess.Popen[bytes] | None = None
        self._events = -1
        self._buffer = b""

    def run(self, job: Mapping[str, Any], tick: Callable[[str], bool]) -> dict[str, Any]:
        text = ""
        for event in self.events(job):
            if event["event"] != "progress":
                return event
            text = event["text"]
            if not tick(text):
                self.close()
                raise Lost
        raise self._died()

    def events(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What happens to a job, several times a second, until its last event. Raises ``JudgeDied``.

        The judge is started by the thread that goes through this, and ends with that thread.
        """
        if self._process is None or self._process.poll() is not None:
            yield from self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(dict(job)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        event: dict[str, Any] | None = {"event": "progress", "text": "starting"}
        while True:
            if event is not None:
                told = event
            yield told
            if told["event"] != "progress":
                return
            event = self._next(_TICK)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            os.close(self._events)
            self._process, self._events, self._buffer = None, -1, b""

    def _start(self) -> Iterator[dict[str, Any]]:
        self.close()
        ours, theirs = os.pipe()
        arguments = [sys.executable, "-m", "scoring.serve.judging", str(theirs)]
        arguments += ["--config", self._config] if self._config else []
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
        if self._threads is not None:
            environment["OMP_NUM_THREADS"] = str(self._threads)
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), pass_fds=[theirs], env=environment)
        os.close(theirs)
        self._events = ours
        until = time.monotonic() + START_SECONDS
        while (event := self._next(_TICK)) is None:
            yield {"event": "progress", "text": "starting the judge"}
            if time.monotonic() > until:
                self.close()
                raise JudgeDied(f"the judge did not start within {START_SECONDS:g} s")
        assert event["event"] == "ready"

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next event, None if there was none in time. Raises ``JudgeDied``."""
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._events], [], [], left)[0]:
                return None
            part = os.read(self._events, 1 << 20)
            if not part:
                raise self._died()
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def _died(self) -> JudgeDied:
        assert self._process is not None
        code = self._process.wait()
        self.close()
        return JudgeDied(f"the judge's process ended ({'signal ' + str(-code) if code < 0 else f'exit code {code}'})")
