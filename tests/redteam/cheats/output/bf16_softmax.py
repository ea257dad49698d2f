# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: the exponentials in bf16
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    x, scale = data
    return torch.softmax((x * scale).bfloat16(), dim=-1).float()
