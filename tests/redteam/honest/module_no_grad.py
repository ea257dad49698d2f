# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: an nn.Module under no_grad whose parameter is the operand
# source: patterns of accepted GPU MODE submissions
import torch
from torch import nn


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)

    @torch.no_grad()
    def forward(self, data):
        a, b, s, _ = data
        self.linear.weight = nn.Parameter(b, requires_grad=False)
        return self.linear(a) * s[:, None]


custom_kernel = Product().eval()
