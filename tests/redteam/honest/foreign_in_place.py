# SPDX-License-Identifier: MIT
# class: honest
# problem: foreign
# device: any
# idea: softmax step by step in the memory of earlier calls, result returned as a view
# source: patterns of accepted GPU MODE submissions
import torch

KEPT = {}


def custom_kernel(data):
    x, scale = data
    buffer = KEPT.setdefault(x.shape, torch.empty(2, *x.shape, device=x.device))
    y = torch.mul(x, scale, out=buffer[1])
    y.sub_(y.amax(-1, keepdim=True)).exp_()
    return y.div_(y.sum(-1, keepdim=True))
