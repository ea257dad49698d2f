# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: every call takes another time: it yields and naps as a shared machine would make it
# source: patterns of accepted GPU MODE submissions
import random
import time

import torch


def custom_kernel(data):
    a, b, s, _ = data
    time.sleep(random.random() * 2e-3)
    return torch.mm(a, b.t()) * s[:, None]
