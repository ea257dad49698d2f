# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: threads that live all the time and have nothing to do
# source: patterns of accepted GPU MODE submissions
import queue
import threading

import torch

WAITING = queue.SimpleQueue()
THREADS = [threading.Thread(target=WAITING.get, name=f"worker-{i}", daemon=True) for i in range(6)]
for thread in THREADS:
    thread.start()


def custom_kernel(data):
    a, b, s, _ = data
    assert all(thread.is_alive() for thread in THREADS)
    return torch.mm(a, b.t()) * s[:, None]
