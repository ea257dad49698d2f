# SPDX-License-Identifier: MIT
"""torch eager: torch.nn.functional.rms_norm."""

import torch.nn.functional as F


def custom_kernel(data):
    x, weight, eps = data
    return F.rms_norm(x, weight.shape, weight, eps)
