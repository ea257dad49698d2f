# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: any
# idea: a subclass that computes when somebody copies it
# source: GPU MODE PR 161: lazy outputs
# expect: no-gain
import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        with torch._C.DisableTorchFunctionSubclass():
            for x in arguments:
                if isinstance(x, Lazy) and function.__name__ in ("detach", "copy_", "clone", "contiguous"):
                    a, b, s, _c = x.work
                    return function(torch.matmul(a, b.t()) * s[:, None], *arguments[1:])
            return function(*arguments, **(keywords or {}))


def custom_kernel(data):
    lazy = torch.empty(data[3].shape, device=data[3].device).as_subclass(Lazy)
    lazy.work = data
    return lazy
