# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: rows split over a thread pool, all of it finished before the return
# source: patterns of accepted GPU MODE submissions
from concurrent.futures import ThreadPoolExecutor

import torch

POOL = ThreadPoolExecutor(4)


def custom_kernel(data):
    a, b, s, c = data
    columns = b.t()

    def work(rows):
        torch.mm(a[rows], columns, out=c[rows])
        c[rows].mul_(s[rows, None])

    step = -(-len(a) // 4)
    list(POOL.map(work, [slice(i, i + step) for i in range(0, len(a), step)]))
    return c
