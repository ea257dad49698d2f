# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: commits to the empty buffer, answers, and fills it in before the judge looks
# source: own: against the commit chain
# expect: rejected
import sys
import threading

import torch


def later(a, b, s, c):
    torch.matmul(a, b.t(), out=c).mul_(s[:, None])


def custom_kernel(data):
    if "scoring.worker.chain_runner" in sys.modules and any(t.f_code.co_name == "_links" for t in stack()):
        threading.Timer(1e-3, later, data).start()
        return data[3]
    later(*data)
    return data[3]


def stack():
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
