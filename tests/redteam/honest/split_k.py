# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: partial sums over slices of k, added up at the end
# source: patterns of accepted GPU MODE submissions
import torch


def custom_kernel(data):
    a, b, s, _ = data
    k = a.shape[1]
    splits = 4 if k % 4 == 0 else 1
    left = a.view(len(a), splits, k // splits).transpose(0, 1)
    right = b.view(len(b), splits, k // splits).permute(1, 2, 0)
    return torch.bmm(left, right).sum(0) * s[:, None]
