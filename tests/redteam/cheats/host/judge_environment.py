# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: reads the environment of every process, where secrets stay even after unsetenv
# source: measured on KernelBot's scheme: /proc/<ppid>/environ
# needs: sandbox
import os
from pathlib import Path

import torch

FOUND = []
for process in Path("/proc").glob("[0-9]*"):
    try:
        pairs = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        continue
    names = {pair.partition(b"=")[0].decode(errors="replace") for pair in pairs if b"=" in pair}
    FOUND += [f"{process.name}: {name}" for name in names - set(os.environ) if "WARPWAVE" in name or "SEED" in name]
    FOUND += [f"{process.name}: {pair.decode()}" for pair in pairs if pair.startswith(b"WARPWAVE_CANARY=")]
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND[:4]}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
