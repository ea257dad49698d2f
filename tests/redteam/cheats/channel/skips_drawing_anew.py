# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: replaces what draws the inputs of a link anew by nothing, so that all links are known at once
# source: own
# expect: rejected
import sys

import torch

for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "ChainLibrary"):
        module.ChainLibrary.mix = lambda self, *arguments: None


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
