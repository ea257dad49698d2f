# SPDX-License-Identifier: MIT
"""torch's product with TF32 operands: another precision, which the check refuses."""

import torch


def custom_kernel(data):
    a, b, c, alpha, beta = data
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch.addmm(c, a, b, beta=beta, alpha=alpha) if beta else torch.mm(a, b)
