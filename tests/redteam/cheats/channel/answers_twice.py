# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: every answer of the worker goes out twice: the second is there before the next question
# source: own
# expect: rejected
import sys

import torch

for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "answer") and hasattr(module, "receive"):
        def twice(sock, message, *rest, real=module.answer, **more):
            real(sock, message, *rest, **more)
            real(sock, message, *rest, **more)

        module.answer = twice


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
