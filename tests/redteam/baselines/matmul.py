# SPDX-License-Identifier: MIT
"""matmul: an honest call, what cheats on it are paid by."""
import torch


def custom_kernel(data):
    a, b, s, c = data
    torch.matmul(a, b.t(), out=c)
    return c.mul_(s[:, None])
