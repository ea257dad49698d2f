# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: any
# idea: computes every slot when the worker is told of it, long before a call is timed
# source: own: answer theft by frames and gc
# expect: no-gain
import sys

import torch

CONTESTANTS = next(m for n, m in sys.modules.items() if n.endswith("scoring.worker.loaders"))
READY = {}
REAL = CONTESTANTS.Slot.data


def all_slots():
    import gc
    return [o for o in gc.get_objects() if isinstance(o, CONTESTANTS.Slot) and "a" in str(o.tensors.keys())]


def custom_kernel(data):
    a, b, s, c = data
    key = a.data_ptr(), a[0, :6].sum().item(), b[0, :6].sum().item()
    if key in READY:
        return READY.pop(key)
    READY.clear()
    for slot in all_slots():
        if slot.tensors and slot.outputs and slot.outputs["c"].shape == c.shape:
            a2, b2, s2, _c2 = REAL(slot)
            READY[a2.data_ptr(), a2[0, :6].sum().item(), b2[0, :6].sum().item()] = (a2 @ b2.t()) * s2[:, None]
    return READY.pop(key) if key in READY else torch.matmul(a, b.t(), out=c).mul_(s[:, None])
