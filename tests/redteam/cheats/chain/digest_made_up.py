# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: all links are computed and committed as they should be, but the digest that is told is made up
# source: own: against the commit chain
# expect: rejected
import sys

import torch

LINKS = sys.modules.get("scoring.chain.links")
if LINKS is not None:
    REAL = LINKS.Links.run
    LINKS.Links.run = lambda self, secret: {**REAL(self, secret), "digest": "00" * 16}


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
