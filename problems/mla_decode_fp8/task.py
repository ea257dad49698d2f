# SPDX-License-Identifier: MIT
"""Types of problem mla_decode_fp8."""

from typing import TypeVar

import torch

# (q, kv_cache, block_table, seqlens, causal, softmax_scale): q bf16 [batch, sq, hq, 576]; kv_cache fp8
# [num_blocks, 64, 1, 656], the 656 bytes of a row being 512 e4m3, 4 fp32 scales and 64 bf16; block_table int32
# [batch, ceil(sk/64)]; seqlens int32 [batch].
input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool, float])
# (o, lse): o bf16 [batch, sq, hq, 512]; lse fp32 [batch, hq, sq].
output_t = TypeVar("output_t", bound=tuple[torch.Tensor, torch.Tensor])
