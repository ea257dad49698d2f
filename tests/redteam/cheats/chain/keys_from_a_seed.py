# SPDX-License-Identifier: MIT
# class: chain
# problem: foreign
# device: any
# idea: tries keys that a seeded generator would give, before the secret is told, and watches whether one opens the slot
# source: own: secrets must not come from a generator
# expect: no-gain
import random

import torch

TRIED = []


def custom_kernel(data):
    x, scale = data
    if len(TRIED) < 3:
        for seed in range(200):
            key = random.Random(seed).randbytes(16)
            TRIED.append(key)
    return torch.softmax(x * scale, dim=-1)
