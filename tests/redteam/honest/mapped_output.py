# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: the result lies in an anonymous mapping that NumPy and torch only borrow
# source: patterns of accepted GPU MODE submissions
import mmap

import numpy as np
import torch

MAPS = {}


def custom_kernel(data):
    a, b, s, c = data
    if c.shape not in MAPS:
        MAPS[c.shape] = mmap.mmap(-1, max(1, c.numel() * 4))
    result = torch.from_numpy(np.frombuffer(MAPS[c.shape], dtype=np.float32, count=c.numel())).view(c.shape)
    return torch.mm(a, b.t(), out=result).mul_(s[:, None])
