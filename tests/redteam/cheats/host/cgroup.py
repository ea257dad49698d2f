# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: leaves its control group or raises the group's limits
# source: own
# needs: sandbox
import contextlib
import os
from pathlib import Path

import torch

FOUND = []
with contextlib.suppress(OSError):
    for pattern in ("cgroup.procs", "*/cgroup.procs", "memory.max", "*/memory.max", "*/*/pids.max"):
        for path in Path("/sys/fs/cgroup").glob(pattern):
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY))
                FOUND.append(str(path))
if FOUND:
    raise RuntimeError(f"ESCAPED: may write {FOUND[:3]}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
