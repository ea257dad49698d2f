# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: custom_kernel is an object with state and __call__, and counts its calls
# source: patterns of accepted GPU MODE submissions
import torch


class Kernel:
    def __init__(self):
        self.calls = 0
        self.shapes = set()

    def __call__(self, data):
        a, b, s, c = data
        self.calls += 1
        self.shapes.add(tuple(c.shape))
        return torch.addmm(c, a * s[:, None], b.t(), beta=0)


custom_kernel = Kernel()
