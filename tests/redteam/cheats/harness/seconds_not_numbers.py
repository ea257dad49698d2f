# SPDX-License-Identifier: MIT
# class: harness
# problem: foreign
# device: any
# idea: seconds that are text, negative, a list, true, nothing or immense, one after the other
# source: own
# expect: no-gain
import itertools
import sys

import torch

WIRE = next(m for n, m in sys.modules.items() if n.endswith("scoring.ipc.wire"))
REAL = WIRE.answer
VALUES = itertools.cycle(["0", -1.0, [1e-9], True, None, 1e308, 10**400, {"seconds": 0}])


def send(sock, message, *rest, **keywords):
    if "seconds" in message:
        message["seconds"] = next(VALUES)
    return REAL(sock, message, *rest, **keywords)


WIRE.answer = send


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
