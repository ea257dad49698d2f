# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: four processes of a gigabyte each, left asleep, so that the judge itself runs out of memory
# source: own
# needs: sandbox
import os
import time

import torch

for _child in range(4):
    if os.fork() == 0:
        try:
            hog = b"\1" * (1 << 30)
            time.sleep(20 if hog else 0)
        finally:
            os._exit(0)
time.sleep(1.5)


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
