# SPDX-License-Identifier: MIT
"""The judge's end of a worker: start it, ask it, and be rid of it whatever it does."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from scoring import wire
from scoring.model import Status

ROOT = Path(__file__).resolve().parent.parent
KEEP_OUTPUT = 64 << 10        # bytes of the worker's stdout and stderr that are kept (the last ones)

# What the code under test may see of the environment: toolchains, devices and library paths, nothing of the judge's.
ENVIRONMENT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "ROCM_PATH", "HIP_PATH", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CXX", "CC",
    "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "MAX_JOBS",
    "OMP_NUM_THREADS", "WARPWAVE_EMULATOR",
)


MARK = "WARPWAVE_WORKER"      # in the environment of a worker and of all it starts, so that strays are found


class WorkerFailure(Exception):
    """A request did not succeed. ``alive`` tells whether the worker can take another one."""

    def __init__(self, status: Status, message: str, alive: bool):
        super().__init__(message)
        self.status = status
        self.alive = alive


class WorkerProcess:
    """One worker process and the socket to it. Use as a context manager."""

    def __init__(
        self, device: int | None = None, threads: int | None = None, start_timeout: float = 120.0,
        program: Sequence[str] = ("-m", "scoring.worker"),
    ):
        self.device = device
        self._tail = bytearray()
        self._dead: str | None = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = ours
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment[MARK] = self._mark = secrets.token_hex(8)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-u", *program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], start_new_session=True, env=environment, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        assert self._process.stdout is not None
        self._drain = threading.Thread(target=self._read_output, args=(self._process.stdout,), daemon=True)
        self._drain.start()
        try:
            self.facts = self.request("hello", start_timeout, device=device, threads=threads)
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

    def request(self, do: str, timeout: float, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        """Ask and wait for the answer, at most ``timeout`` seconds.

        Raises ``WorkerFailure``: TIMEOUT and a crash kill the worker; TAMPERED is an answer that is no answer.
        """
        if self._dead is not None:
            raise WorkerFailure(Status.RUNTIME_ERROR, self._dead, alive=False)
        nonce = secrets.token_hex(8)
        try:
            wire.send(self._socket, {"do": do, "nonce": nonce, **fields}, fds, timeout)
            reply, received = wire.receive(self._socket, timeout)
        except wire.WireTimeout as error:
            self._kill(f"no answer to '{do}' within {timeout:g} s")
            raise WorkerFailure(Status.TIMEOUT, self._dead or str(error), alive=False) from error
        except wire.WireError as error:
            message = self._autopsy(do, error)
            self._kill(message)
            raise WorkerFailure(Status.RUNTIME_ERROR, message, alive=False) from error
        except BaseException:         # interrupted: whatever it answers later would be taken for another answer
            self._kill("interrupted")
            raise
        for fd in received:           # a worker has no reason to send descriptors
            os.close(fd)
        if reply.get("nonce") != nonce:
            self._kill("the worker answered a question that was not asked")
            raise WorkerFailure(Status.TAMPERED, self._dead or "", alive=False)
        if reply.get("ok") is not True:
            raise WorkerFailure(*self._failure(reply), alive=True)
        return reply

    def output(self) -> str:
        """The last of what the worker and the code under test printed."""
        return bytes(self._tail).decode(errors="replace").strip()

    def close(self) -> None:
        """Hang up, then kill the whole process group and what left it; no process stays."""
        if self._dead is None:
            self._kill("closed")

    def _failure(self, reply: Mapping[str, Any]) -> tuple[Status, str]:
        word, text = reply.get("status"), reply.get("error")
        allowed = {Status.RUNTIME_ERROR, Status.INCORRECT_SHAPE, Status.INCORRECT_DTYPE, Status.UNSUPPORTED}
        status = Status(word) if isinstance(word, str) and word in allowed else Status.RUNTIME_ERROR
        return status, text[-6000:] if isinstance(text, str) else "the worker failed without a reason"

    def _autopsy(self, do: str, error: Exception) -> str:
        """Why the worker is gone: its signal or exit code, and the last thing it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5 if isinstance(error, wire.WireClosed) else 0)
        code = self._process.returncode
        if code is None:
            reason = f"broke the connection during '{do}' ({error})"
        elif code < 0:
            reason = f"crashed during '{do}' with {_signal_name(-code)}"
        else:
            reason = f"left during '{do}' with exit code {code}"
        self._drain.join(1)
        tail = self.output()[-1500:]
        return f"the code under test {reason}" + (f"; it printed last:\n{tail}" if tail else "")

    def _kill(self, reason: str) -> None:
        self._dead = reason
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        _kill_strays(f"{MARK}={self._mark}".encode())
        self._drain.join(1)
        if self._process.stdout is not None and not self._drain.is_alive():
            self._process.stdout.close()

    def _read_output(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._tail += chunk
                del self._tail[:-KEEP_OUTPUT]


def _kill_strays(mark: bytes) -> None:
    """Kill what a worker started in sessions of their own (daemons, compile servers), told by their environment."""
    quiet = 0
    for _attempt in range(20):
        found = [path.parent for path in Path("/proc").glob("[0-9]*/environ") if mark in _environment(path)]
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(process.name), signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        if quiet == 2:               # once is not enough: a process that is just being started shows no environment
            return
        time.sleep(0.02)


def _environment(path: Path) -> list[bytes]:
    """A process's environment, empty for one that is gone or another user's."""
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def _signal_name(number: int) -> str:
    """``SIGSEGV``, or the bare number of a signal that has no name (most real-time ones)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
