# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: an object that says it lies where the output does, so that nothing is copied and no error shows
# source: own
# expect: rejected
import torch


class Here(torch.Tensor):
    def data_ptr(self):
        return CURRENT.data_ptr()


def custom_kernel(data):
    global CURRENT
    CURRENT = data[3]
    return torch.zeros(CURRENT.shape, device=CURRENT.device).as_subclass(Here)
