# SPDX-License-Identifier: MIT
"""Types of problem quantize_int8."""

from typing import TypeVar

import torch

# (x, form): x [n] fp16, form "symmetric" or "asymmetric".
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, str])
# (q, scale, zero): q [n] int8, scale [1] fp32, zero [1] int32.
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor])
