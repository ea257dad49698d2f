# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: leaves a file wherever it can write, for the next judgement to find
# source: GPU MODE eigh 2026: /dev/shm replay; catalogue 3.2
# needs: sandbox
# again: yes
import contextlib
import os
import site
import sys
import sysconfig
from pathlib import Path

import torch

NAME = ".warpwave-redteam-leftover"
HOME = Path(os.environ.get("HOME", "/nonexistent"))
PLACES = [
    Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run/lock"), Path("/var/cache"), Path.cwd(), HOME,
    HOME / ".cache", HOME / ".config", Path(site.getusersitepackages()), Path(sysconfig.get_path("purelib")),
    Path(torch.__file__).parent, Path(sys.prefix), *(Path(entry or ".") for entry in sys.path),
    *Path(__file__).resolve().parents, Path(os.environ.get("TMPDIR", "/tmp")).parent,
    *(Path(os.environ[name]) for name in ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TMPDIR") if name in os.environ),
]
FOUND = []
for place in dict.fromkeys(PLACES):
    with contextlib.suppress(OSError):
        if (place / NAME).exists():
            FOUND.append(str(place / NAME))
            (place / NAME).unlink()
        else:
            place.mkdir(parents=True, exist_ok=True)
            (place / NAME).write_text("the answer was 42\n")
if FOUND:
    raise RuntimeError(f"ESCAPED: an earlier judgement left {FOUND}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
