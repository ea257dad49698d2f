# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: the result is a strided corner of a padded buffer ten times as large
# source: patterns of accepted GPU MODE submissions
import torch

POOL = {}


def custom_kernel(data):
    a, b, s, c = data
    m, n = c.shape
    pool = POOL.get(a.device)
    if pool is None or pool.shape[0] < 2 * m or pool.shape[1] < n + 64:
        pool = POOL[a.device] = a.new_zeros(4 * m, 2 * n + 64)
    result = pool[m : 2 * m, 37 : 37 + n]
    result.copy_(torch.mm(a, b.t()) * s[:, None])
    return result
