# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: threads at import that warm up libraries and end
# source: patterns of accepted GPU MODE submissions
import threading

import torch


def warm(size):
    torch.mm(torch.ones(size, size), torch.ones(size, size))


THREADS = [threading.Thread(target=warm, args=(64 * i,)) for i in range(1, 5)]
for thread in THREADS:
    thread.start()
for thread in THREADS:
    thread.join()


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
