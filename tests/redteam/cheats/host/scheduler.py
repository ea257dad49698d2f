# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: gives itself the highest priority and takes it from the judge
# source: own
# needs: sandbox
import contextlib
import os
import resource
from pathlib import Path

import torch

FOUND = []
PARENT = os.getppid()
with contextlib.suppress(OSError):
    os.nice(-5)
    FOUND.append("negative nice value")
with contextlib.suppress(OSError):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    FOUND.append("real-time class")
with contextlib.suppress(OSError):
    Path("/proc/self/oom_score_adj").write_text("-500")
    FOUND.append("spared by the out-of-memory killer")
if Path(f"/proc/{PARENT}/comm").exists() and "bwrap" not in Path(f"/proc/{PARENT}/comm").read_text():
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, PARENT, os.getpriority(os.PRIO_PROCESS, PARENT))
        FOUND.append("sets the judge's priority")
    with contextlib.suppress(OSError):
        os.sched_setaffinity(PARENT, os.sched_getaffinity(PARENT))
        FOUND.append("sets the judge's cores")
    with contextlib.suppress(OSError):
        resource.prlimit(PARENT, resource.RLIMIT_CORE, resource.prlimit(PARENT, resource.RLIMIT_CORE))
        FOUND.append("sets the judge's limits")
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
