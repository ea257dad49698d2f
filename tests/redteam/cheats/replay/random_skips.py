# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: one call in four returns the previous answer
# source: pygpubench: sparse re-checks
# expect: rejected
import random

import torch

LAST = {}


def custom_kernel(data):
    a, b, s, c = data
    if c.shape in LAST and random.random() < 0.25:
        return LAST[c.shape]
    LAST[c.shape] = torch.matmul(a, b.t()) * s[:, None]
    return LAST[c.shape]
