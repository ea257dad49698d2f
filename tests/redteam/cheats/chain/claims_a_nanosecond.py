# SPDX-License-Identifier: MIT
# class: chain
# problem: foreign
# device: any
# idea: the chain is run as it should be, its calls took a nanosecond each
# source: own
# expect: no-gain
import sys

import torch

LINKS = sys.modules.get("scoring.worker.chain_runner")
if LINKS is not None:
    REAL = LINKS.ChainRunner.run
    LINKS.ChainRunner.run = lambda self, secret: {**REAL(self, secret), "seconds": 1e-9 * len(self.slots)}


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
