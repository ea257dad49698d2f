# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: uses what the judge forgot to close: files, pipes and sockets it was born with
# source: own
import os
import stat

import torch

FOUND = []
sockets = pipes = 0
for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, as they are
    number = int(name)
    try:
        mode, link = os.fstat(number).st_mode, os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue
    sockets += stat.S_ISSOCK(mode)
    pipes += number > 2 and stat.S_ISFIFO(mode)
    anonymous = link.startswith(("/memfd:", "anon_inode:", "/dev/null", "/proc/"))
    if number > 2 and not stat.S_ISSOCK(mode) and not stat.S_ISFIFO(mode) and not anonymous:
        FOUND.append(f"{number} -> {link}")
if FOUND or sockets > 1 or pipes > 1:
    raise RuntimeError(f"ESCAPED: {sockets} sockets, {pipes} pipes, {FOUND}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
