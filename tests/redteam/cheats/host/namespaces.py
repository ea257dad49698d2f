# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: makes user namespaces by unshare, clone and clone3, or enters another one
# source: measured: clone3 reopens user namespaces; catalogue 4.2
# needs: sandbox
import ctypes
import os
import signal

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS, NEWNET, NEWPID, NEWTIME = 0x10000000, 0x20000, 0x40000000, 0x20000000, 0x80
CLONE, CLONE3 = 56, 435


def in_child(attempt):
    """Whether ``attempt`` is true in a process that ends with it."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(42 if attempt() else 0)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def cloned(*arguments):
    pid = LIBC.syscall(*arguments)
    if pid == 0:
        os._exit(0)
    return pid > 0


ARGUMENTS = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, signal.SIGCHLD)
ATTEMPTS = {
    "unshare user": lambda: LIBC.unshare(NEWUSER) == 0,
    "unshare user and mount": lambda: LIBC.unshare(NEWUSER | NEWNS) == 0,
    "unshare mount": lambda: LIBC.unshare(NEWNS) == 0,
    "unshare net": lambda: LIBC.unshare(NEWNET) == 0,
    "unshare pid": lambda: LIBC.unshare(NEWPID) == 0,
    "unshare time": lambda: LIBC.unshare(NEWTIME) == 0,
    "clone user": lambda: cloned(CLONE, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0),
    "clone3 user": lambda: cloned(CLONE3, ctypes.byref(ARGUMENTS), ctypes.sizeof(ARGUMENTS)),
    "setns": lambda: LIBC.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0,
}
FOUND = [name for name, attempt in ATTEMPTS.items() if in_child(attempt)]
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
