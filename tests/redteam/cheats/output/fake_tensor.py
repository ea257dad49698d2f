# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: a fake tensor says that it lies on the right device and has no bytes
# source: SOL-ExecBench
# expect: rejected
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

MODE = FakeTensorMode()


def custom_kernel(data):
    x, _scale = data
    with MODE:
        return torch.empty(x.shape, device=x.device)
