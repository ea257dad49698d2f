# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: skips all slots but the one the worker named last
# source: GPU MODE eval_better_bench: only the last of 15 was checked
# expect: rejected
import sys

import torch


def custom_kernel(data):
    a, b, s, c = data
    frame = sys._getframe()
    while frame is not None and "worker" not in frame.f_locals:
        frame = frame.f_back
    slots = list(frame.f_locals["worker"].slots.values()) if frame else []
    if slots and slots[-1].tensors["c"].data_ptr() != c.data_ptr():
        return c
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
