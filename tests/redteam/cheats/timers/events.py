# SPDX-License-Identifier: MIT
# class: timers
# problem: matmul
# device: any
# idea: events measure a tenth, synchronising does nothing
# source: KernelBench, CUDA-L1, pygpubench event_array
# expect: no-gain
import torch

REAL = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: 0.1 * REAL(self, end)
torch.cuda.synchronize = lambda *_device: None
torch.cuda.Event.synchronize = lambda self: None


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
