# SPDX-License-Identifier: MIT
"""The worker of a device: leases one submission after another, has it judged, and writes the result.

It is small: the judge is a process of its own (``executor``), which this one can end at any moment. Whatever kills a
worker, its lease runs out or is taken back, and the submission is judged again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import FrameType

from sqlalchemy.exc import SQLAlchemyError

from scoring.sandbox import cleanup
from scoring.serve import queue
from scoring.serve.executor import Executor, JudgeDied, LocalExecutor, Lost
from scoring.serve.outcome import outcome_of
from scoring.serve.queue import Outcome, Taken
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import FAILED

DATABASE = "WARPWAVE_SERVE_DATABASE"         # in the environment: a URL may hold a password
IDLE_SECONDS = 0.3
_SAVED = 1.0                 # seconds between two writes of progress


def worker_name(number: int = 0) -> str:
    """A name that says which process of which host it is, so that it can be found to be gone."""
    return f"{socket.gethostname()[:40]}|{cleanup.own_name()}|{number}"


def is_gone(name: str) -> bool:
    """Whether a worker of this host no longer runs; False for one of another host, of which nothing is known."""
    host, _, rest = name.partition("|")
    return host == socket.gethostname()[:40] and cleanup.is_gone(rest)


class Loop:
    """One worker; ``devices`` are the names of what it judges on, by GPU label. ``run`` returns when ``stop`` is set,
    or when its parent is gone."""

    def __init__(self, database: Database, devices: Mapping[str, str], executor: Executor, lease_seconds: float,
                 number: int = 0, parent: int | None = None):
        self.database, self.devices, self.executor = database, dict(devices), executor
        self.lease_seconds = lease_seconds
        self.name = worker_name(number)
        self.stop = threading.Event()             # at once: what is judged is queued again
        self._parent = os.getppid() if parent is None else parent
        self._announced = self._released = 0.0

    def run(self) -> None:
        try:
            while not self._should_end():
                try:
                    if not self.step():
                        self.stop.wait(IDLE_SECONDS * random.uniform(0.8, 1.2))
                except SQLAlchemyError as error:       # the database restarts, its disk is full, …
                    sys.stderr.write(f"worker {', '.join(self.devices)}: {error}\n")
                    self.stop.wait(2.0)
        finally:
            self.executor.close()
            with self.database.write() as session:
                queue.forget(session, self.name)

    def _should_end(self) -> bool:
        """Also without its server: the next one starts workers of its own, which would time beside this one."""
        return self.stop.is_set() or os.getppid() != self._parent

    def step(self) -> bool:
        """Judge one submission; False if none waits."""
        self._housekeeping()
        with self.database.read() as session:
            if not queue.has_work(session, list(self.devices)):
                return False
        with self.database.write() as session:
            taken = queue.take(session, list(self.devices), self.name, self.lease_seconds)
        if taken is None:
            return False
        self._judge(taken)
        return True

    def _judge(self, taken: Taken) -> None:
        tick = self._ticker(taken)
        try:
            outcome = outcome_of(self.executor.run(asdict(taken), tick))
        except Lost:
            return
        except JudgeDied as error:
            with self.database.write() as session:
                queue.lose(session, taken, str(error))
            return
        except (ValueError, KeyError, TypeError) as error:       # a record that is none
            outcome = Outcome(FAILED, f"the judge's answer cannot be read ({type(error).__name__})")
        with self.database.write() as session:
            queue.finish(session, taken, outcome)

    def _ticker(self, taken: Taken) -> Callable[[str], bool]:
        """Renews the lease and keeps the progress, a few times per lease; False once the lease is not ours."""
        saved, said = time.monotonic(), ""

        def tick(text: str) -> bool:
            nonlocal saved, said
            now = time.monotonic()
            if self._should_end():
                with self.database.write() as session:
                    queue.put_back(session, taken)
                return False
            if now - saved < (_SAVED if text != said else min(_SAVED * 3, self.lease_seconds / 4)):
                return True
            saved, said = now, text
            self._housekeeping()
            with self.database.write() as session:
                return queue.renew(session, taken, self.lease_seconds, text)

        return tick

    def _housekeeping(self) -> None:
        now = time.monotonic()
        if now - self._announced > self.lease_seconds / 3 or self._announced == 0:
            self._announced = now
            with self.database.write() as session:
                queue.announce(session, self.name, self.devices, socket.gethostname())
        if now - self._released > self.lease_seconds / 2 or self._released == 0:
            self._released = now
            with self.database.write() as session:
                queue.release(session, is_gone)


def load_executor(name: str) -> Callable[..., Executor]:
    """The class that ``MODULE:CLASS`` names."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Executor] = getattr(importlib.import_module(module), attribute)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scoring.serve.worker")
    parser.add_argument("--gpu", action="append", required=True, help="the label of a GPU to judge on; repeatable")
    parser.add_argument("--device", action="append", required=True, help="the name of each GPU's device, in order")
    parser.add_argument("--config")
    parser.add_argument("--lease-seconds", type=float, default=30.0)
    parser.add_argument("--parent", type=int, help="the server's process, which may have ended before this one began")
    parser.add_argument("--executor", help="MODULE:CLASS in place of the judge's process")
    options = parser.parse_args()
    executor = load_executor(options.executor)(options.config) if options.executor else LocalExecutor(options.config)
    devices = dict(zip(options.gpu, options.device, strict=True))
    loop = Loop(Database(os.environ[DATABASE], pool=2), devices, executor, options.lease_seconds,
                parent=options.parent)

    def end(_number: int, _frame: FrameType | None) -> None:
        loop.stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
