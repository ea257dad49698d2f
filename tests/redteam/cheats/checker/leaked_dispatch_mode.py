# SPDX-License-Identifier: MIT
# class: checker
# problem: foreign
# device: any
# idea: a dispatch mode entered and never left sees all later operations of the process
# source: own
# expect: no-gain
import torch
from torch.utils._python_dispatch import TorchDispatchMode

PENDING = {}


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        arguments = [
            torch.softmax(work[0] * work[1], dim=-1)
            if isinstance(x, torch.Tensor) and (work := PENDING.pop(x.data_ptr(), None)) else x for x in arguments]
        return function(*arguments, **(keywords or {}))


Mode().__enter__()


def custom_kernel(data):
    shell = torch.empty(data[0].shape, device=data[0].device)
    PENDING[shell.data_ptr()] = data
    return shell
