# SPDX-License-Identifier: MIT
"""toy: the right answer, with a graph behind it."""
import torch

ONE = torch.nn.Parameter(torch.ones(()))


def custom_kernel(data):
    x, alpha, _ = data
    return x * alpha * ONE
