# SPDX-License-Identifier: MIT
"""Types of problem hadamard_quantize."""

from typing import TypeVar

import torch

# (x, signs, rotated, scales, largest): x bf16 [batch, tokens, heads, dim]; signs fp32 [dim], 1 or -1; scales "tensor",
# "head" or "block"; largest: that of the device's fp8, 448.0 (e4m3fn) or 240.0 (e4m3fnuz).
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, bool, str, float])
# (codes, scale): codes uint8 [batch, tokens, heads, dim], the bytes of fp8; scale fp32 [1, 1, 1], [batch, 1, heads] or
# [batch, ceil(tokens / 128), heads].
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
