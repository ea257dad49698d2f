# SPDX-License-Identifier: MIT
"""Types of problem masked_softmax."""

from typing import TypeVar

import torch

# (scores, bias, lengths, v, causal): scores [batch, hq, sq, sk] fp16; bias fp16 [1], [hq, sq, sk] or
# [batch, hq, sq, sk]; lengths [batch] int32; v [batch, hk, sk, dim] fp16.
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool])
# (p, repeated): p [batch, hq, sq, sk] fp16, repeated [batch, hq, sk, dim] fp16.
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
