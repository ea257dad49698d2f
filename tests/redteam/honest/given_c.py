# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: writes the given c and returns that very object: the result aliases an input
# source: patterns of accepted GPU MODE submissions
import torch


def custom_kernel(data):
    a, b, s, c = data
    return torch.mm(a, b.t(), out=c).mul_(s[:, None])
