# SPDX-License-Identifier: MIT
"""Run a compiler on a contestant's source in the sandbox: what it includes or embeds can only be what a worker may see.

The user stays the judge's, without capabilities, so that what the compiler writes is the judge's. All of it lies in one
folder.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scoring.sandbox import isolation
from scoring.sandbox.launch import Launched
from scoring.sandbox.policy import Policy

KEPT = 4 << 20               # bytes of a compiler's messages: the first ones


class Compilers:
    """Compilers in the sandbox of ``policy``: what ``backends.confine`` takes. Any thread may use it."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self._running: set[Launched] = set()
        self._lock = threading.Lock()

    def run(
        self, argv: Sequence[str], cwd: Path, timeout: float, environment: Mapping[str, str],
        readable: Sequence[Path], writable: Path,
    ) -> tuple[int | None, bytes]:
        """The exit status of ``argv`` (None if it was killed after ``timeout`` seconds) and what it printed.

        It starts in ``cwd`` with ``environment`` over that of a worker. Besides the system's files it sees ``readable``
        ones, its own folder, and ``writable``. Raises ``OSError`` if it cannot be started, ``SandboxError`` if the
        machine cannot give the isolation that the policy asks for.
        """
        tier = replace(isolation.choose(self.policy).tier, own_user=False)
        deadline, printed = time.monotonic() + timeout, bytearray()
        launched = Launched(
            tier, self.policy, ("-x", str(cwd), *argv), [*readable, _home(argv[0], self.policy)], writable=[writable],
            variables=environment)
        with self._lock:
            self._running.add(launched)
        try:
            code = _wait(launched, deadline, printed)
            if code not in (0, None) and launched.group is not None and launched.group.events()["oom_kill"]:
                printed += f"\nerror: the compiler used up its {self.policy.memory / 2**30:.3g} GiB\n".encode()
        finally:
            with self._lock:
                self._running.discard(launched)
            launched.kill()
            if launched.process.stdout is not None:
                launched.process.stdout.close()
        return code, bytes(printed)

    def stop(self) -> None:
        """Kill every compiler that ``run`` waits for in any thread."""
        with self._lock:
            running = list(self._running)
        for launched in running:
            launched.kill()


def _wait(launched: Launched, deadline: float, printed: bytearray) -> int | None:
    """The exit status, None at the deadline; the first ``KEPT`` bytes of its output are appended to ``printed``."""
    assert launched.process.stdout is not None
    pipe = launched.process.stdout.fileno()
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            return None
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            break
        printed += chunk[: KEPT - len(printed)]
    try:
        return launched.process.wait(max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return None


def _home(program: str, policy: Policy) -> Path:
    """The folder of a toolchain: what ``bin`` with the program lies in, unless that shows what nobody may see."""
    folder = Path(program).resolve().parent
    above = folder.parent
    private = any(hidden == above or hidden.is_relative_to(above) for hidden in policy.concealed)
    return above if folder.name == "bin" and above != Path("/") and not private else folder
