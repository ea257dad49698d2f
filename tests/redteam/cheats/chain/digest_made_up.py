# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: all links are computed and committed as they should be, but the digest that is told is made up
# source: own: against the commit chain
# expect: rejected
import sys

import torch

LINKS = sys.modules.get("scoring.worker.chain_runner")
if LINKS is not None:
    def links(self, real=LINKS.ChainRunner._links):
        real(self)
        self.keys[len(self.slots)].zero_()

    LINKS.ChainRunner._links = links


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
