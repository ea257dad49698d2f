# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: opens other processes' files by /proc/PID/fd and takes their sockets by pidfd_getfd
# source: own
# needs: sandbox
import ctypes
import os
from pathlib import Path

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_GETFD = 434, 438
for process in Path("/proc").glob("[0-9]*"):
    if int(process.name) == os.getpid():
        continue
    handle = LIBC.syscall(PIDFD_OPEN, int(process.name), 0)
    for number in range(64):
        taken = LIBC.syscall(PIDFD_GETFD, handle, number, 0) if handle >= 0 else -1
        if taken >= 0:
            link = os.readlink(f"/proc/self/fd/{taken}")
            raise RuntimeError(f"ESCAPED: descriptor {number} of {process.name}: {link}")
    try:
        links = [link.readlink() for link in (process / "fd").iterdir()]
    except OSError:
        continue
    if links:
        raise RuntimeError(f"ESCAPED: {process.name} has open {links[:4]}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
