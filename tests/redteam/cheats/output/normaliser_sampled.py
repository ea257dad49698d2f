# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: the sum in the denominator from every fourth column
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    x, scale = data
    y = torch.exp(x * scale)
    return y / (4 * y[:, ::4].sum(-1, keepdim=True))
