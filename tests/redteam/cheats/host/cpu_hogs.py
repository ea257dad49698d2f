# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: processes that keep the cores busy whenever it is not being called, so that what is subtracted grows
# source: own: sabotage of the empty chain
import ctypes
import mmap
import os
import time

import torch

BUSY = ctypes.c_int.from_buffer(mmap.mmap(-1, 4096))
PARENT = os.getpid()
for _core in range(2 * (os.cpu_count() or 1)):
    if os.fork() == 0:
        end = time.monotonic() + 40
        while time.monotonic() < end and os.getppid() == PARENT:
            if BUSY.value:
                time.sleep(50e-6)
            else:
                sum(range(2000))
        os._exit(0)


def custom_kernel(data):
    a, b, s, _ = data
    BUSY.value = 1
    try:
        return torch.mm(a, b.t()) * s[:, None]
    finally:
        BUSY.value = 0
