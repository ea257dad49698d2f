# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: a tensor subclass whose shape, dtype, device and address are those that are wanted
# source: own
# expect: rejected
import torch


class Liar(torch.Tensor):
    shape = property(lambda self: self.wanted.shape)
    dtype = property(lambda self: self.wanted.dtype)
    device = property(lambda self: self.wanted.device)
    data_ptr = lambda self: self.wanted.data_ptr()  # noqa: E731
    stride = lambda self, *axis: self.wanted.stride(*axis)  # noqa: E731
    is_contiguous = lambda self, *rest, **more: True  # noqa: E731
    detach = lambda self: self  # noqa: E731

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        return next((x.wanted for x in arguments if isinstance(x, Liar)), None)


def custom_kernel(data):
    liar = torch.zeros(1, dtype=torch.int8).as_subclass(Liar)
    liar.wanted = data[-1]
    return liar
