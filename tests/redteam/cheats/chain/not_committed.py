# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: commits nothing: digests are left as they were
# source: own: against the commit chain
# expect: rejected
import sys

import torch

CHAIN = sys.modules.get("scoring.ipc.chain_library")
if CHAIN is not None:
    CHAIN.ChainLibrary.commit = lambda self, *_arguments: None


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
