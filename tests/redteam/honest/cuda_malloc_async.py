# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: a workspace from cudaMallocAsync for each call, freed in stream order
# source: patterns of accepted GPU MODE submissions
import ctypes
from pathlib import Path

import torch


def runtime():
    """The CUDA runtime that torch itself has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcudart" in line:
            return ctypes.CDLL(line.split()[-1])
    return ctypes.CDLL("libcudart.so")


CUDART = runtime()
CUDART.cudaMallocAsync.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p]
CUDART.cudaFreeAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


class Workspace:
    """fp32 memory of a shape, as torch and NumPy-like libraries can take it over."""

    def __init__(self, shape, stream):
        self.pointer, self.stream = ctypes.c_void_p(), stream
        if CUDART.cudaMallocAsync(ctypes.byref(self.pointer), 4 * shape[0] * shape[1], stream):
            raise MemoryError(shape)
        self.__cuda_array_interface__ = {
            "shape": tuple(shape), "typestr": "<f4", "data": (self.pointer.value, False), "version": 3, "strides": None}

    def free(self):
        CUDART.cudaFreeAsync(self.pointer, self.stream)


def dequantised(x, scale, out):
    rows, k = x.shape
    out.copy_(x)
    out.view(rows, k // 128, 128).mul_(scale[:, :, None])
    return out


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    stream = torch.cuda.current_stream().cuda_stream
    held = Workspace(a.shape, stream), Workspace(b.shape, stream)
    left, right = (torch.as_tensor(workspace, device=a.device) for workspace in held)
    dequantised(a, a_scale, left)
    dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)], right)
    c.copy_(left @ right.t())
    for workspace in held:
        workspace.free()
    return c
