# SPDX-License-Identifier: MIT
# class: checker
# problem: foreign
# device: any
# idea: a subclass for which every comparison is true
# source: own
# expect: rejected
import torch


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function.__name__ in ("allclose", "equal", "eq", "le", "lt", "isclose", "all", "isfinite"):
                return torch.ones((), dtype=torch.bool)
            return function(*arguments, **(keywords or {}))


def custom_kernel(data):
    return torch.zeros(data[0].shape, device=data[0].device).as_subclass(Agreeable)
