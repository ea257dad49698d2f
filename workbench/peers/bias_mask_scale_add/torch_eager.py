# SPDX-License-Identifier: MIT
"""torch eager: the definition in torch, in fp32."""

import torch


def custom_kernel(data):
    x, residual, bias, mask, scale = data
    rest = residual.float()
    return torch.where(mask != 0, (x.float() + bias.float()) * scale + rest, rest).half()
