# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: calls only note their operands; the last slot's call computes all with one batched product
# source: GPU MODE 2026: deferral across calls
# expect: no-gain
import sys

import torch

WAITING = []


def custom_kernel(data):
    a, b, s, c = data
    frame, slots = sys._getframe(), []
    while frame is not None and not slots:
        worker = frame.f_locals.get("worker")
        slots = list(worker.slots.values()) if hasattr(worker, "slots") else []
        frame = frame.f_back
    WAITING.append(data)
    if not slots or slots[-1].tensors["c"].data_ptr() == c.data_ptr() or len(slots) == 1:
        for a2, b2, s2, c2 in WAITING:
            torch.matmul(a2, b2.t(), out=c2).mul_(s2[:, None])
        WAITING.clear()
    return c
