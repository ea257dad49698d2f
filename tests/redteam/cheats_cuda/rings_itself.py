# SPDX-License-Identifier: MIT
# class: chain
# problem: fp8_gemm
# device: cuda
# idea: a thread rings at both doorbells with keys of its own, known beforehand
# source: own: against the doorbells
# expect: rejected
import ctypes
import sys
import threading
import time

WORKERS = []


def ring():
    while True:
        time.sleep(2e-5)
        for base in WORKERS:
            for doorbell in (base, base + 256):
                ctypes.memset(doorbell + 16, 7, 16)
                ctypes.c_uint32.from_address(doorbell).value = 1


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "ChainLibrary"):
        def opened(self, host, real=module.ChainLibrary.open):
            seen = real(self, host)
            WORKERS[:] = [host.data_ptr()]
            return seen

        def closed(self, host, real=module.ChainLibrary.close):
            WORKERS.clear()
            real(self, host)

        module.ChainLibrary.open, module.ChainLibrary.close = opened, closed
        threading.Thread(target=ring, daemon=True).start()
        break


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    return data[4].copy_(product(*data[:4]))
