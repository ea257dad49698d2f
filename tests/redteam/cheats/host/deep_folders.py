# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: leaves folders nested 3000 deep, unreadable ones and links, so that the judge fails to clean up
# source: own
import contextlib
import os
import tempfile
from pathlib import Path

import torch

HERE = Path.cwd()
for place in (tempfile.gettempdir(), Path(__file__).parent):
    with contextlib.suppress(OSError):
        start = Path(tempfile.mkdtemp(dir=place))
        (start / "loop").symlink_to(start)
        (start / "outside").symlink_to("/usr")
        (start / "closed").mkdir()
        (start / "closed" / "file").touch()
        (start / "closed").chmod(0)
        os.chdir(start)
        for _level in range(3000):
            os.mkdir("d" * 40)  # noqa: PTH102 - relative, as the whole path is too long
            os.chdir("d" * 40)
os.chdir(HERE)


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
