# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: returns an object that says it is a tensor, equals everything and has every attribute
# source: own
# expect: rejected
import torch


class Pretender:
    shape = dtype = device = None

    def __init__(self, like):
        self.shape, self.dtype, self.device = like.shape, like.dtype, like.device

    @property
    def __class__(self):
        return torch.Tensor

    def __getattr__(self, name):
        return lambda *arguments, **keywords: self

    def __eq__(self, other):
        return True

    __hash__ = object.__hash__
    __bool__ = __eq__


def custom_kernel(data):
    return Pretender(data[-1])
