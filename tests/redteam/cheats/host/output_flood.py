# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: three hundred megabytes on stdout and stderr while imported, and some at every call
# source: own
import os
import time

import torch

LINE = b"\x1b[2J\x1b[32mPASSED\x1b[0m " * 3000 + b"\n"
END = time.monotonic() + 8
for index in range(300 * (1 << 20) // len(LINE)):
    os.write(1 + index % 2, LINE)
    if time.monotonic() > END:
        break


def custom_kernel(data):
    a, b, s, _ = data
    os.write(1, LINE)
    return torch.mm(a, b.t()) * s[:, None]
