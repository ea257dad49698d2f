# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: NaN in the elements that are left out, for a checker that counts |difference| > tolerance
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    x, scale = data
    y = torch.full_like(x, float("nan"))
    y[::2] = torch.softmax(x[::2] * scale, dim=-1)
    return y
