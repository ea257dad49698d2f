# SPDX-License-Identifier: MIT
# class: timers
# problem: fp8_gemm
# device: cuda
# idea: sleeps so that the chip is cool and boosts, and asks the driver for the highest clocks
# source: own
# needs: sandbox
import ctypes
import subprocess
import time

import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def ask_for_clocks():
    """By NVML and by its command; both need rights that it should not have."""
    try:
        nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        nvml.nvmlInit_v2()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        if nvml.nvmlDeviceSetGpuLockedClocks(device, 1980, 1980) == 0:
            nvml.nvmlDeviceResetGpuLockedClocks(device)
            return "nvmlDeviceSetGpuLockedClocks"
        if subprocess.run(["nvidia-smi", "-lgc", "1980"], capture_output=True, timeout=20, check=False).returncode == 0:
            subprocess.run(["nvidia-smi", "-rgc"], capture_output=True, timeout=20, check=False)
            return "nvidia-smi -lgc"
    except (OSError, subprocess.SubprocessError):
        pass
    return ""


if told := ask_for_clocks():
    raise RuntimeError(f"ESCAPED: {told} was allowed")
time.sleep(2)


def custom_kernel(data):
    if not torch.cuda.is_current_stream_capturing():
        time.sleep(0.02)
    return data[4].copy_(product(*data[:4]))
