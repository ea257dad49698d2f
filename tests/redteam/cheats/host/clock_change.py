# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: sets the machine's clock, to what it is, and its rate
# source: own
# needs: sandbox
import contextlib
import ctypes
import os
import time

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
FOUND = []
with contextlib.suppress(OSError):
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    FOUND.append("clock_settime")
TIMEX = ctypes.create_string_buffer(256)
TIMEX[0] = 1                                   # ADJ_OFFSET, of zero
if LIBC.adjtimex(TIMEX) >= 0:
    FOUND.append("adjtimex")
for path in ("/dev/rtc", "/dev/rtc0", "/proc/self/timens_offsets"):
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY))
        if "timens" not in path:
            FOUND.append(path)
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
