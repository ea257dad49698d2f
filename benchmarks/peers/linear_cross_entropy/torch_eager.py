# SPDX-License-Identifier: MIT
"""torch eager: a linear layer and torch.nn.functional.cross_entropy, by autograd, all logits in memory as bf16."""

import torch
import torch.nn.functional as F


def custom_kernel(data):
    x, w, target, smoothing = data
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    with torch.enable_grad():
        loss = F.cross_entropy(F.linear(x, w).float(), target.long(), label_smoothing=smoothing)
        dx, dw = torch.autograd.grad(loss, (x, w))
    return dx, dw.float(), loss.detach().reshape(1)
