# SPDX-License-Identifier: MIT
"""torch's product in fp32: TF32 stays off."""

import torch


def custom_kernel(data):
    a, b, c, alpha, beta = data
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.addmm(c, a, b, beta=beta, alpha=alpha) if beta else torch.mm(a, b)
