# SPDX-License-Identifier: MIT
# class: timers
# problem: foreign
# device: any
# idea: the clock runs backwards: differences are negative
# source: own
# expect: no-gain
import itertools
import time

import torch

COUNT = itertools.count()
time.perf_counter = lambda: -1e-4 * next(COUNT)


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
