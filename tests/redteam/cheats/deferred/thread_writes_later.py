# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: cpu
# idea: returns at once, a thread writes the answer while the clock is already stopped
# source: KernelBench issue; SOL-ExecBench
# expect: no-gain
import threading

import torch


def work(a, b, s, c):
    torch.matmul(a, b.t(), out=c).mul_(s[:, None])


def custom_kernel(data):
    threading.Thread(target=work, args=data, daemon=True).start()
    return data[3]
