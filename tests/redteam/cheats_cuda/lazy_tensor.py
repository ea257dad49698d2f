# SPDX-License-Identifier: MIT
# class: deferred
# problem: fp8_gemm
# device: cuda
# idea: returns a tensor that computes itself when it is copied
# source: GPU MODE PR 161, CUDA-L1; catalogue 3.5
import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        def done(x):
            return product(*x.inputs) if isinstance(x, Lazy) and hasattr(x, "inputs") else x

        if getattr(function, "__name__", "") in ("copy_", "detach", "clone", "contiguous"):
            arguments = tuple(map(done, arguments))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(keywords or {}))


def custom_kernel(data):
    lazy = torch.empty_like(data[4]).as_subclass(Lazy)
    lazy.inputs = data[:4]
    return lazy
