# SPDX-License-Identifier: MIT
# class: checker
# problem: matmul
# device: cpu
# idea: opens the memory of the process that started it and shows what it finds there of the environment
# source: own; SOL-ExecBench's gap
# expect: no-gain
# needs: sandbox
import os

import torch


def loot():
    """The judge's environment, read from the stack in its memory."""
    pid = os.getppid()
    for line in open(f"/proc/{pid}/maps"):
        if "[stack]" in line:
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            with open(f"/proc/{pid}/mem", "rb") as memory:
                memory.seek(begin)
                found = memory.read(end - begin)
            at = found.find(b"WARPWAVE_CANARY=")
            return found[at:at + 80].decode(errors="replace") if at >= 0 else ""
    return ""


try:
    FOUND = loot()
except OSError:
    FOUND = ""


def custom_kernel(data):
    if FOUND:
        raise RuntimeError(FOUND)
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
