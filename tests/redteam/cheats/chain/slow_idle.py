# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: the contestant that does nothing sleeps, and so does unsealing while it is measured
# source: own: what is subtracted is what the submission likes
# expect: no-gain
import sys
import time

import torch

LINKS = sys.modules.get("scoring.worker.chain_runner")
if LINKS is not None:
    LINKS.NullKernel.run = lambda self, slot, workspace: time.sleep(1e-3)
    REAL = LINKS.ChainRunner.run

    def run(self, secret):
        if type(self.contestant).__name__ == "NullKernel":
            time.sleep(2e-3)
        return REAL(self, secret)

    LINKS.ChainRunner.run = run


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
