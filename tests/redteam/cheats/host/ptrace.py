# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: traces the process that started it
# source: pygpubench exploits: ptrace POKETEXT
# needs: sandbox
import ctypes
import os
from pathlib import Path

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
SEIZE = 0x4206                                # does not stop the traced process; ends with this one
for pid in {os.getppid(), *(int(path.name) for path in Path("/proc").glob("[0-9]*"))} - {0, os.getpid()}:
    ancestors = {os.getppid(), 1}
    if pid in ancestors and LIBC.ptrace(SEIZE, pid, None, None) == 0:
        raise RuntimeError(f"ESCAPED: traces {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
