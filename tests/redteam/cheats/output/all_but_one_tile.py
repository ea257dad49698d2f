# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: leaves one 16×16 tile of the middle as it is: a mean or a cosine hardly moves
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    row, column = a.shape[0] // 2 - 8, b.shape[0] // 2 - 8
    kept = c[row:row + 16, column:column + 16].clone()
    torch.matmul(a, b.t(), out=c).mul_(s[:, None])
    c[row:row + 16, column:column + 16] = kept
    return c
