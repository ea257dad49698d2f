# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: looks for seeds, secrets and paths in command lines and in its own environment
# source: own
# needs: sandbox
import os
import re
from pathlib import Path

import torch

WORDS = re.compile(r"--?seed|secret|canary|popcorn|reference", re.IGNORECASE)
FOUND = [name for name in os.environ if WORDS.search(name)]
FOUND += [f"{name}={value}" for name, value in os.environ.items() if WORDS.search(value)]
for process in Path("/proc").glob("[0-9]*"):
    try:
        line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        continue
    if WORDS.search(line):
        FOUND.append(f"{process.name}: {line[:200]}")
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND[:3]}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
