# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: cpu
# idea: two threads keep the cores busy whenever no call is under way, so that the judge measures a slow empty chain
# source: own: what is calibrated later is calibrated slower
# expect: no-gain
import threading
import time

import torch

LAST = [time.monotonic()]
END = time.monotonic() + 20


def burn():
    size = torch.randn(600, 600)
    while time.monotonic() < END:
        if time.monotonic() - LAST[0] > 5e-3:
            size @ size
        else:
            time.sleep(1e-3)


for _core in range(2):
    threading.Thread(target=burn, daemon=True).start()


def custom_kernel(data):
    LAST[0] = time.monotonic()
    a, b, s, c = data
    torch.matmul(a, b.t(), out=c).mul_(s[:, None])
    LAST[0] = time.monotonic()
    return c
