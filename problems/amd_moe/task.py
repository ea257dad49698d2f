# SPDX-License-Identifier: MIT
"""Types of problem amd_moe."""

from typing import TypeVar

import torch

# (x, weights, config): x fp16 [bs, seqlen, dhidden]; weights a dict of tensors, config a dict of plain sizes
# (generate_input lists both).
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, int]])
# y, fp16 [bs, seqlen, dhidden].
output_t = TypeVar("output_t", bound=torch.Tensor)
