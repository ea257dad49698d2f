# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: the first call of a sweep computes all slots, found through the frames; the later calls return
# source: GPU MODE nvfp4_group_gemm, 3.9x at rank 1
# expect: no-gain
import sys

import torch

DONE = {}


def slots():
    frame = sys._getframe()
    while frame is not None:
        worker = frame.f_locals.get("worker")
        if hasattr(worker, "slots"):
            return list(worker.slots.values())
        frame = frame.f_back
    return []


def custom_kernel(data):
    a, b, s, c = data
    if DONE.pop(c.data_ptr(), None) == a[0, :4].tolist():
        return c
    for slot in slots():
        if slot.tensors["c"].shape == c.shape:
            a2, b2, s2, c2 = slot.data()
            torch.matmul(a2, b2.t(), out=c2).mul_(s2[:, None])
            DONE[c2.data_ptr()] = a2[0, :4].tolist()
    if not DONE.pop(c.data_ptr(), None):
        torch.matmul(a, b.t(), out=c).mul_(s[:, None])
    return c
