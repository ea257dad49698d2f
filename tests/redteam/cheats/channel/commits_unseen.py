# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: replaces the copying digest by one of the poison that lies there, and copies the answer later
# source: own
# expect: rejected
import sys
import threading

import torch

LATER = []
for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "ChainLibrary"):
        def commit(self, source, target, nbytes, key, digest, nonce, real=module.ChainLibrary.commit):
            scratch = digest.clone()
            threading.Timer(1e-3, lambda: real(self, source, target, nbytes, key, scratch, nonce)).start()
            real(self, target, target, nbytes, key, digest, nonce)

        module.ChainLibrary.commit = commit


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
