#!POPCORN leaderboard example-rmsnorm
#!POPCORN gpus H100
# SPDX-License-Identifier: MIT
"""A wrong submission that the check must refuse: it takes the mean over the first half of the row only."""

import torch

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, weight, eps = data
    wide = x.float()
    half = wide[:, : wide.shape[1] // 2]
    scale = torch.rsqrt(half.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)
