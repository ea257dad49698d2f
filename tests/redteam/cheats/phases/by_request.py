# SPDX-License-Identifier: MIT
# class: phases
# problem: matmul
# device: any
# idea: reads the request in the worker's frames: works for `call`, repeats itself for anything that is timed
# source: KernelGuard: stack inspection
# expect: rejected
import sys

import torch

LAST = {}


def custom_kernel(data):
    a, b, s, c = data
    frame, request = sys._getframe(), "call"
    while frame is not None:
        message = frame.f_locals.get("message")
        if isinstance(message, dict) and "do" in message:
            request = message["do"]
        frame = frame.f_back
    if request == "call" or c.shape not in LAST:
        LAST[c.shape] = torch.matmul(a, b.t()) * s[:, None]
    return LAST[c.shape]
