# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: replaces what runs the chain: a made-up digest at once
# source: own
# expect: rejected
import sys

import torch

for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "Links"):
        module.Links.run = lambda self, secret: {"digest": "0" * 32, "seconds": 1e-6}


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
