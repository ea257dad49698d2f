# SPDX-License-Identifier: MIT
"""Types of problem amd_mla_decode."""

from typing import TypeVar

import torch

# (config, x, kv_cache): config a dict of plain sizes and bf16 weights (generate_input lists them); x bf16
# [batch, 1, dim]; kv_cache bf16 [batch, 8192, 576], of which the first config["prefill"] rows are filled.
input_t = TypeVar("input_t", bound=tuple[dict[str, int | torch.Tensor], torch.Tensor, torch.Tensor])
# (y, kv_row): y bf16 [batch, 1, dim]; kv_row bf16 [batch, 1, 576], which kv_cache[:, prefill] must hold as well.
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
