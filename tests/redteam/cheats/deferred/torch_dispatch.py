# SPDX-License-Identifier: MIT
# class: deferred
# problem: foreign
# device: any
# idea: a wrapper without memory that is materialised below the dispatcher
# source: SOL-ExecBench; GPU MODE PR 161
# expect: no-gain
import torch
from torch.utils._pytree import tree_map


class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x, scale):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    def __init__(self, x, scale):
        self.work = x, scale

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        def make(value):
            return torch.softmax(value.work[0] * value.work[1], dim=-1) if isinstance(value, Lazy) else value

        return function(*tree_map(make, arguments), **tree_map(make, keywords or {}))


def custom_kernel(data):
    return Lazy(*data)
