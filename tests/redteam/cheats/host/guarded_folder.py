# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: reads and overwrites what lies in other folders of /tmp
# source: own
# needs: sandbox
import contextlib
from pathlib import Path

import torch

for path in Path("/tmp/warpwave-canary").glob("*/*"):
    with contextlib.suppress(OSError):
        stolen = path.read_text()
        (path.parent / "stolen.txt").write_text(stolen)
        path.write_text("overwritten\n")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
