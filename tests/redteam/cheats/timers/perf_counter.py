# SPDX-License-Identifier: MIT
# class: timers
# problem: foreign
# device: cpu
# idea: time.perf_counter and its kin run a thousand times slower after import
# source: KernelBench, GPU MODE eigh 2026, CUDA-L1
# expect: no-gain
import time

import torch

for name in ("perf_counter", "monotonic", "time", "process_time", "thread_time"):
    setattr(time, name, lambda real=getattr(time, name): real() * 1e-3)
for name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
    setattr(time, name, lambda real=getattr(time, name): real() // 1000)


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
