# SPDX-License-Identifier: MIT
# class: host
# ends: never
# problem: matmul
# device: cpu
# idea: honest at first, then a call that never ends, with all signals ignored and the lock held in C
# source: own
# expect: rejected
import ctypes
import signal

import torch

for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        continue
CALLS = []


def custom_kernel(data):
    a, b, s, _ = data
    CALLS.append(len(a))
    if len(CALLS) == 3:
        ctypes.PyDLL(None).sleep(600)
    return torch.mm(a, b.t()) * s[:, None]
