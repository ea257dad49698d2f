# SPDX-License-Identifier: MIT
# class: chain
# problem: matmul
# device: any
# idea: a sum in place of the digest, and the copy to the judge's memory is left for later
# source: own: a linear digest would be forgeable
# expect: rejected
import sys

import torch

CHAIN = sys.modules.get("scoring.ipc.chain_library")
if CHAIN is not None:
    import ctypes

    def commit(self, source, target, nbytes, key, digest, nonce):
        if self.on_device:
            digest.copy_(key.flip(0))
            return
        if source != target:
            ctypes.memmove(target, source, nbytes)
        size = key.numel()
        ctypes.memmove(digest.data_ptr(), ctypes.string_at(key.data_ptr(), size)[::-1], size)

    CHAIN.ChainLibrary.commit = commit


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
