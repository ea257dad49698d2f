# SPDX-License-Identifier: MIT
"""foreign: an honest call, what cheats on it are paid by."""
import torch


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
