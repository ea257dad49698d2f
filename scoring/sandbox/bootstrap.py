# SPDX-License-Identifier: MIT
"""The first thing that runs in a sandbox: give up all privilege, then become the worker.

``python -m scoring.sandbox.bootstrap SPEC -m MODULE ARGUMENT…`` (or ``-c CODE``, or ``-x FOLDER PROGRAM ARGUMENT…`` for
any program, started in a folder); SPEC is a JSON object made by ``scoring.sandbox.launch``. It runs before torch is
imported, while the process has one thread: privileges are those of a thread. Imports the standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import json
import os
import resource
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from scoring.sandbox import landlock

SET_PDEATHSIG, SET_DUMPABLE, SET_SECCOMP, CAPBSET_DROP, SET_NO_NEW_PRIVS, CAP_AMBIENT = 1, 4, 22, 24, 38, 47
SECCOMP_FILTER, CLEAR_ALL = 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    spec = json.loads(sys.argv[1])
    confine(spec)
    kind, what, *arguments = sys.argv[2:]
    if kind == "-x":
        os.chdir(what)
        os.execv(arguments[0], arguments)
    sys.argv = [what if kind == "-m" else "-c", *arguments]
    if kind == "-m":
        gc.disable()                         # what is imported stays; the worker switches it on when it has torch
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})      # what python -c does


def confine(spec: dict[str, Any]) -> None:
    """Limits, then user and capabilities, then files, then system calls: each needs what the next takes away."""
    for name, value in spec["limits"].items():
        _limit(getattr(resource, f"RLIMIT_{name}"), value)
    with contextlib.suppress(OSError):       # the judge's launcher has done it where it could
        Path("/proc/self/oom_score_adj").write_text("1000")
    drop(spec["uid"], spec["groups"])
    _prctl(SET_NO_NEW_PRIVS, 1)
    if spec["landlock"] is not None:
        rules = spec["landlock"]
        landlock.restrict(
            rules["read"], rules["listed"], [*rules["write"], f"/proc/{os.getpid()}"], rules["devices"])
    if spec["seccomp"] is not None:
        _filter(base64.b64decode(spec["seccomp"]))
    _prctl(SET_PDEATHSIG, signal.SIGKILL)    # changing the user has cleared it
    os.umask(0o077)


def drop(uid: int | None, groups: list[int]) -> None:
    """Become user and group ``uid`` (None: stay who we are) and lose every capability, now and for good."""
    highest = 63
    with contextlib.suppress(OSError, ValueError):
        highest = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(highest + 1):    # fails without CAP_SETPCAP, and then there is nothing to lose
        _libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
    if uid is not None:
        os.setgroups(groups)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        _prctl(SET_DUMPABLE, 1)              # its own /proc/self belongs to it again
    nothing = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if _libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up capabilities")


def _limit(which: int, value: int) -> None:
    """Set a resource limit, or the lower one that holds already."""
    _soft, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _filter(program: bytes) -> None:
    """Have the kernel run ``program`` before each system call."""
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    _prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(Filter(len(program) // 8, program)))


def _prctl(option: int, value: int, pointer: Any = 0) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


if __name__ == "__main__":
    main()
