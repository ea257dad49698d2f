# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: cpu
# idea: SIGALRM's handler does the work a moment after the call returned
# source: own
# expect: no-gain
import signal

import torch

PENDING = []


def work(*_arguments):
    while PENDING:
        a, b, s, c = PENDING.pop()
        torch.matmul(a, b.t(), out=c).mul_(s[:, None])


signal.signal(signal.SIGALRM, work)


def custom_kernel(data):
    PENDING.append(data)
    signal.setitimer(signal.ITIMER_REAL, 1e-4)
    return data[3]
