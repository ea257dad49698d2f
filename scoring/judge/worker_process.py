# SPDX-License-Identifier: MIT
"""The judge's end of a worker: start it, ask it, and be rid of it whatever it does."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from scoring.ipc import absent, wire
from scoring.ipc.requests import Hello, Request, encode
from scoring.output.text import harmless, harmless_json
from scoring.record import Status
from scoring.sandbox import devices, isolation
from scoring.sandbox.launch import Launched
from scoring.sandbox.policy import Policy

GRACE = 5.0                   # seconds after ``until`` in which the ordinary ways of ending have their turn
OVERDUE = "the job's time was over, and the worker was ended"
KEEP_OUTPUT = 64 << 10        # bytes of the worker's stdout and stderr that are kept (the last ones)


class WorkerFailure(Exception):
    """A request did not succeed. ``alive`` tells whether the worker can take another one.

    ``answer``: what the worker claims to have got in place of what was expected, as it came.
    """

    def __init__(self, status: Status, message: str, alive: bool, answer: Any = None):
        super().__init__(message)
        self.status = status
        self.alive = alive
        self.answer = answer


@dataclass(frozen=True)
class Asked:
    """A question whose answer is awaited ``until`` a moment on the monotonic clock."""

    do: str
    nonce: str
    until: float
    patience: str


class WorkerProcess:
    """One worker process in its sandbox, and the socket to it. Use as a context manager.

    ``device`` is torch's number of the GPU, None for none; its ranks may use the first ``gpus``. ``files`` are the
    files and folders that the worker may read besides the system's: what it is going to load. ``isolation`` names what
    it runs in, ``isolation_reasons`` say why that is not stronger, and ``pid`` is the process that is there for as long
    as the worker is. No request lasts beyond ``until``, on the monotonic clock, and a watchdog then ends the worker
    whatever this thread waits for. Answers may have ``largest_answer`` bytes. ``variables`` go over the environment of
    a worker.
    Raises ``WorkerFailure`` if it does not start, ``SandboxError`` if ``sandbox`` asks for what this machine cannot do.
    """

    def __init__(
        self, device: int | None = None, start_timeout: float = 120.0,
        program: Sequence[str] = ("-m", "scoring.worker"), files: Sequence[Path] = (), sandbox: Policy | None = None,
        until: float = math.inf, largest_answer: int = wire.MAX_ANSWER, gpus: int = 0,
        variables: Mapping[str, str] | None = None,
    ):
        self.device = device
        self.until, self.largest_answer = until, largest_answer
        self._tail = bytearray()
        self._dead: str | None = None
        self._overdue = False         # the watchdog has ended the worker
        policy, nodes = sandbox or Policy(), devices.first(gpus) if gpus else devices.of(device)
        choice = isolation.choose(policy, nodes)
        self.isolation = choice.tier.name
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.shutdown(socket.SHUT_RD)         # nothing, no descriptor above all, ever waits in our end of it
        answers, their_answers = os.pipe()
        os.set_blocking(answers, False)
        self._socket, self._answers = ours, answers
        self._poll = select.poll()
        self._poll.register(answers, select.POLLIN)
        passed = [theirs.fileno(), their_answers]
        try:
            self._launched = Launched(
                choice.tier, policy, [*program, *map(str, passed)], files, nodes, passed, variables=variables)
        except BaseException:
            ours.close()
            os.close(answers)
            raise
        finally:
            theirs.close()
            os.close(their_answers)
        self.isolation_reasons = (*choice.reasons, *self._launched.notes)
        self._process = self._launched.process
        assert self._process.stdout is not None
        self._drain = threading.Thread(target=self._read_output, args=(self._process.stdout,), daemon=True)
        self._drain.start()
        self._watchdog: threading.Timer | None = None
        if until < math.inf:
            self._watchdog = threading.Timer(max(until - time.monotonic(), 0.0) + GRACE, self._end)
            self._watchdog.daemon = True
            self._watchdog.start()
        try:
            self.facts = self.request(Hello(nodes.index), start_timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._dead is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, request: Request, timeout: float, fds: Sequence[int] = ()) -> dict[str, Any]:
        """Ask and wait for the answer, at most ``timeout`` seconds and not beyond ``until``.

        Raises ``WorkerFailure``: TIMEOUT and a crash kill the worker; TAMPERED is an answer that is no answer.
        """
        return self.answer(self.ask(request, timeout, fds))

    def ask(self, request: Request, timeout: float, fds: Sequence[int] = ()) -> Asked:
        """Ask, and leave the answer to ``answer``: nothing else may be asked before. Raises ``WorkerFailure``."""
        if self._overdue and self._dead is None:
            self._kill(OVERDUE)
        if self._dead is not None:
            raise WorkerFailure(
                Status.TIMEOUT if self._overdue else Status.RUNTIME_ERROR, self._dead, alive=False)
        left = self.until - time.monotonic()
        patience = f"within {timeout:g} s" if timeout <= left else "before the job's time was over"
        timeout = min(timeout, max(left, 1e-3))
        asked = Asked(request.name(), secrets.token_hex(8), time.monotonic() + timeout, patience)
        with self._asking(asked):
            wire.send(self._socket, {**encode(request), "nonce": asked.nonce}, fds, timeout)
        return asked

    def answered(self) -> bool:
        """Whether there is something to read, an answer or the end of the connection."""
        return bool(self._poll.poll(0))

    def answer(self, asked: Asked) -> dict[str, Any]:
        """The answer to what was asked. Raises ``WorkerFailure`` as ``request`` does."""
        with self._asking(asked):
            reply = wire.receive_answer(
                self._answers, max(asked.until - time.monotonic(), 1e-3), self.largest_answer)
        if reply.get("nonce") != asked.nonce:
            self._kill("the worker answered a question that was not asked")
            raise WorkerFailure(Status.TAMPERED, self._dead or "", alive=False)
        if reply.get("ok") is not True:
            raise WorkerFailure(*self._failure(reply), alive=True, answer=reply.get("answer"))
        return dict(harmless_json(reply))

    @contextlib.contextmanager
    def _asking(self, asked: Asked) -> Iterator[None]:
        """What goes wrong on the wire is the end of the worker. Raises ``WorkerFailure``."""
        try:
            yield
        except wire.WireTimeout as error:
            self._kill(f"no answer to '{asked.do}' {asked.patience}" + self._struck())
            raise WorkerFailure(Status.TIMEOUT, self._dead or str(error), alive=False) from error
        except wire.WireClosed as error:
            if self._overdue:
                self._kill(OVERDUE)
                raise WorkerFailure(Status.TIMEOUT, OVERDUE, alive=False) from error
            status, message = self._autopsy(asked.do, error)
            self._kill(message)
            raise WorkerFailure(status, message, alive=False) from error
        except wire.WireError as error:
            self._kill(f"the answer to '{asked.do}' is none: {error}")
            raise WorkerFailure(Status.TAMPERED, self._dead or str(error), alive=False) from error
        except BaseException:         # interrupted: whatever it answers later would be taken for another answer
            self._kill("interrupted")
            raise

    def output(self) -> str:
        """The last of what the worker and the code under test printed."""
        return harmless(bytes(self._tail).decode(errors="replace")).strip()

    def close(self) -> None:
        """Hang up, then end everything the worker started; no process stays."""
        if self._dead is None:
            self._kill("closed")

    def _failure(self, reply: Mapping[str, Any]) -> tuple[Status, str]:
        word, text = reply.get("status"), reply.get("error")
        allowed = {Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.INCORRECT_SHAPE, Status.INCORRECT_DTYPE,
                   Status.UNSUPPORTED, Status.UNAVAILABLE}
        status = Status(word) if isinstance(word, str) and word in allowed else Status.RUNTIME_ERROR
        if not isinstance(text, str):
            return status, "the worker failed without a reason"
        package = reply.get("needs")
        if isinstance(package, str) and package.isidentifier() and (named := absent.package(package)):
            return Status.UNAVAILABLE, f"the submission needs {named}"
        return status, harmless(text[-6000:]) + (self._struck(text) if status is Status.RUNTIME_ERROR else "")

    def _autopsy(self, do: str, error: Exception) -> tuple[Status, str]:
        """Why the worker is gone: its signal or exit code, the limit it hit, and the last thing it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5 if isinstance(error, wire.WireClosed) else 0)
        code, number = self._process.returncode, self._launched.exit_signal()
        status = Status.RUNTIME_ERROR
        if code is None:
            reason = f"broke the connection during '{do}' ({error})"
        elif number is not None:
            reason = f"crashed during '{do}' with {_signal_name(number)}"
            if number == signal.SIGSYS:
                status, reason = Status.SANDBOX_VIOLATION, f"{reason}: a system call of another instruction set"
        else:
            reason = f"left during '{do}' with exit code {code}"
        struck = self._struck()
        if (number == signal.SIGKILL and struck) or number == signal.SIGXFSZ:      # ended for going over a limit
            status = Status.SANDBOX_VIOLATION
        self._drain.join(1)
        tail = self.output()[-1500:]
        return status, f"the code under test {reason}{struck}" + (f"; it printed last:\n{tail}" if tail else "")

    def _struck(self, text: str = "") -> str:
        """Which of the sandbox's limits were hit, to be put behind a reason; empty for none.

        Control groups count what they refused. Of other limits only the error tells that ends the code's ``text``.
        """
        group, policy = self._launched.group, self._launched.policy
        events = group.events() if group is not None else {}
        found = []
        if events.get("oom_kill"):
            found.append(f"its {policy.memory / 2**30:.3g} GiB of memory were used up")
        if self._launched.overrun or any(words in text for words in ("No space left on device", "File too large")):
            found.append(self._launched.overrun
                         or f"there are {policy.scratch / 2**30:.3g} GiB for temporary files")
        if events.get("pids") or any(
                words in text for words in ("Resource temporarily unavailable", "can't start new thread")):
            found.append(f"it wanted more than {policy.processes} processes and threads")
        return f" (sandbox: {'; '.join(found)})" if found else ""

    def _end(self) -> None:
        """What the watchdog does, in its own thread: the main one may wait for something that the worker holds up."""
        self._overdue = True
        self._launched.kill()

    def _kill(self, reason: str) -> None:
        self._dead = reason
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._socket.close()
        os.close(self._answers)
        self._launched.kill()
        self._drain.join(1)
        if self._process.stdout is not None and not self._drain.is_alive():
            self._process.stdout.close()

    def _read_output(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._tail += chunk
                del self._tail[:-KEEP_OUTPUT]


def _signal_name(number: int) -> str:
    """``SIGSEGV``, or the bare number of a signal that has no name (most real-time ones)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
