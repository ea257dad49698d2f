# SPDX-License-Identifier: MIT
"""toy: the right answer, in the buffer that came with the data."""
import torch


def custom_kernel(data):
    x, alpha, y = data
    return torch.mul(x, alpha, out=y)
