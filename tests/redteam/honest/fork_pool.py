# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: a multiprocessing pool by fork at import, used for a self-check, and left open
# source: patterns of accepted GPU MODE submissions
import multiprocessing

import torch

torch.set_num_threads(1)


def check(seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(8, 16, generator=generator), torch.randn(4, 16, generator=generator)
    return float((a @ b.t() - torch.einsum("ik,jk->ij", a, b)).abs().max())


POOL = multiprocessing.get_context("fork").Pool(2)
assert max(POOL.map(check, range(4))) < 1e-4


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
