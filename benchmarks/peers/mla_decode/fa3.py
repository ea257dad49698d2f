# SPDX-License-Identifier: MIT
"""FlashAttention-3's latent form (its `qv`) on the paged cache, where `flash_attn_interface` is installed.

Rotary and latent columns are views of one row. An offset of zero per request has pages read row by row, which leaves
out what lies beyond a length; whole pages (fa3_pages.py) bring in the NaN of unused slots.
"""

import torch
from flash_attn_interface import flash_attn_with_kvcache

ZEROS = {}


def custom_kernel(data):
    q, kv_cache, block_table, seqlens, causal, scale = data
    batch = len(q)
    if (batch, q.device) not in ZEROS:
        ZEROS[batch, q.device] = torch.zeros(batch, dtype=torch.int32, device=q.device)
    o, lse, *_ = flash_attn_with_kvcache(
        q[..., 512:], kv_cache[..., 512:], kv_cache[..., :512], qv=q[..., :512], cache_seqlens=seqlens,
        cache_leftpad=ZEROS[batch, q.device], page_table=block_table, softmax_scale=scale, causal=bool(causal),
        return_softmax_lse=True)
    return o, lse
