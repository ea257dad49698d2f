# SPDX-License-Identifier: MIT
"""torch.compile of what torch_eager.py does."""

import torch
import torch.nn.functional as F


@torch.compile(dynamic=False)
def custom_kernel(data):
    x, weight, eps = data
    return F.rms_norm(x, weight.shape, weight, eps)
