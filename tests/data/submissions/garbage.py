# SPDX-License-Identifier: MIT
"""toy: writes bytes to every socket and pipe it finds, then the right answer."""
import os
from pathlib import Path


def custom_kernel(data):
    for path in Path("/proc/self/fd").iterdir():
        try:
            if str(path.readlink()).startswith(("socket:", "pipe:")):
                os.write(int(path.name), b"\x00\x00\x00\x10garbage!")
        except OSError:
            continue
    x, alpha, _ = data
    return x * alpha
