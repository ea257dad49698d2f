# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: cpu
# idea: a collection that the worker's own allocations set off does the work
# source: own
# expect: no-gain
import gc

import torch

PENDING = []


def work(phase, _info):
    while phase == "start" and PENDING:
        a, b, s, c = PENDING.pop()
        torch.matmul(a, b.t(), out=c).mul_(s[:, None])


gc.callbacks.append(work)
gc.set_threshold(5)


def custom_kernel(data):
    PENDING.append(data)
    return data[3]
