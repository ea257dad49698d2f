# SPDX-License-Identifier: MIT
# class: timers
# problem: matmul
# device: cpu
# idea: libc's clock_gettime becomes eleven instructions that count microseconds of its own
# source: pygpubench exploits: function_detour
# expect: no-gain
import ctypes
import mmap
import platform

import torch

COUNTER = ctypes.c_uint64(0)


def detour():
    libc = ctypes.CDLL(None)
    target = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
    code = (b"\x48\xc7\x06\x01\x00\x00\x00"                     # mov qword [rsi], 1
            b"\x48\xb8" + ctypes.addressof(COUNTER).to_bytes(8, "little")      # mov rax, &counter
            + b"\x48\x8b\x10\x48\x81\xc2\xe8\x03\x00\x00"       # mov rdx, [rax]; add rdx, 1000
            b"\x48\x89\x10\x48\x89\x56\x08\x31\xc0\xc3")        # mov [rax], rdx; mov [rsi+8], rdx; xor eax, eax; ret
    page = target & ~(mmap.PAGESIZE - 1)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), 7) == 0:
        ctypes.memmove(target, code, len(code))


if platform.machine() == "x86_64":
    detour()


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
