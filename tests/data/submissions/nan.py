# SPDX-License-Identifier: MIT
"""toy: NaN everywhere."""
import torch


def custom_kernel(data):
    return torch.full_like(data[0], torch.nan)
