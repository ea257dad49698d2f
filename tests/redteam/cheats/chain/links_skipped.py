# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: only the first slot of a chain is computed and committed, its digest stands for the last
# source: own: against the commit chain
# expect: rejected
import sys

LINKS = sys.modules.get("scoring.worker.chain_runner")
if LINKS is not None:
    REAL = LINKS.ChainRunner._links

    def first_only(self):
        slots, self.slots = self.slots, self.slots[:1]
        REAL(self)
        self.slots = slots
        self.keys[len(slots)] = self.keys[1]

    LINKS.ChainRunner._links = first_only


def custom_kernel(data):
    import torch
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
