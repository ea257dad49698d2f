# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: computes only the first and last rows and columns, where a sampling check looks
# source: pygpubench exploits: a checker that samples
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    c.zero_()
    rows = torch.tensor([0, 1, a.shape[0] - 1], device=a.device)
    c[rows] = (a[rows] @ b.t()) * s[rows, None]
    columns = torch.tensor([0, 1, b.shape[0] - 1], device=a.device)
    c[:, columns] = (a @ b[columns].t()) * s[:, None]
    return c
