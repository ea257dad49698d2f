# SPDX-License-Identifier: MIT
"""Copies of tensors that end where mapped device memory ends: what reads or writes behind them, or far before, fails.

An allocator's memory is mapped beyond most tensors, so an access there goes unnoticed until a tensor lies last.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

GRANULE = 2 << 20             # of mappings
FREE = 512 << 20              # bytes of addresses without memory on either side


class _Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("device", ctypes.c_int),
                ("meta", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]


class _Access(ctypes.Structure):
    _fields_ = [("place", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class _Bytes:
    """Device memory as torch takes it over."""

    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy that is never freed."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        status = getattr(driver, name)(*arguments)
        if status != 0:
            raise OSError(f"{name}: status {status}")

    bytes_ = tensor.numel() * tensor.element_size()
    size = -(-bytes_ // GRANULE) * GRANULE
    reserved, handle = ctypes.c_uint64(), ctypes.c_uint64()
    zero, whole = ctypes.c_uint64(0), ctypes.c_size_t(size)
    addresses = ctypes.c_size_t(size + 2 * FREE)
    call("cuMemAddressReserve", ctypes.byref(reserved), addresses, ctypes.c_size_t(0), zero, zero)
    properties = _Properties(1, 0, 1, torch.cuda.current_device(), None)      # pinned, on a device
    call("cuMemCreate", ctypes.byref(handle), whole, ctypes.byref(properties), zero)
    start = reserved.value + FREE
    call("cuMemMap", ctypes.c_uint64(start), whole, ctypes.c_size_t(0), handle, zero)
    access = _Access(1, torch.cuda.current_device(), 3)                       # to read and to write
    call("cuMemSetAccess", ctypes.c_uint64(start), whole, ctypes.byref(access), ctypes.c_size_t(1))
    room = torch.as_tensor(_Bytes(start + size - bytes_, bytes_), device="cuda")
    copy = room.view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)
