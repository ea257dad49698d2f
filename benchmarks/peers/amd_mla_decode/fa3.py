# SPDX-License-Identifier: MIT
"""Projections by the vendor's library and FlashAttention-3's latent form between them, where its module is installed.

It takes rotary and latent columns from arrays of their own (its `qv`), so that the latent ones are read from the cache
as it is. A Triton kernel inside the timed call writes a rotated copy of the rotary ones: 256 bytes moved per token.
"""

import torch
import triton
import triton.language as tl
from flash_attn_interface import flash_attn_with_kvcache

ROWS = 32           # lines of a block of the kernel below
TABLES = {}


def rotations(rows, device):
    """cos and sin, bf16 [rows, 32]; everything in bf16, as the challenge has it."""
    if (rows, device) not in TABLES:
        half = 10000 ** (-torch.arange(32, dtype=torch.bfloat16) / 32)
        angles = torch.arange(rows).to(torch.bfloat16)[:, None] * half
        TABLES[rows, device] = angles.cos().to(device), angles.sin().to(device)
    return TABLES[rows, device]


@triton.jit
def _rotate(x, turned, cos, sin, position, lines, pitch, width, ROWS: tl.constexpr):
    """The last 64 of ``width`` columns of ``lines`` lines of a request, rotated to ``position`` or, if it is negative,
    each to its own. Requests of ``x`` are ``pitch`` elements apart."""
    line = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    request, half, exists = tl.program_id(1).to(tl.int64), tl.arange(0, 32)[None, :], line < lines
    read = x + request * pitch + line * width + width - 64 + half
    write = turned + (request * lines + line) * 64 + half
    angle = tl.where(position < 0, line, position) * 32 + half
    c, s = tl.load(cos + angle, exists).to(tl.float32), tl.load(sin + angle, exists).to(tl.float32)
    first, second = tl.load(read, exists), tl.load(read + 32, exists)
    tl.store(write, first * c - second * s, exists)
    tl.store(write + 32, second * c + first * s, exists)


def rotated(x, lines, position, tables):
    """[requests, lines, 64] from x [requests, at least lines, width]."""
    turned = x.new_empty(len(x), lines, 64)
    _rotate[triton.cdiv(lines, ROWS), len(x)](x, turned, *tables, position, lines, x.stride(0), x.shape[2], ROWS)
    return turned


def custom_kernel(data):
    config, x, kv_cache = data
    x, batch, prefill = x[:, 0], len(x), config["prefill"]
    tables = rotations(kv_cache.shape[1], x.device)
    maps = config["KV_proj_up_weight"].view(128, 256, 512)
    row = x @ config["KV_proj_down_weight"].T
    kv_cache[:, prefill] = row
    up = ((x @ config["Q_proj_down_weight"].T) @ config["Q_proj_up_weight"].T).view(batch, 128, 192)
    latent = x.new_empty(batch, 128, 512)
    torch.bmm(up[..., :128].transpose(0, 1), maps[:, :128], out=latent.transpose(0, 1))
    o = flash_attn_with_kvcache(
        rotated(up, 128, prefill, tables)[:, None], rotated(kv_cache, prefill + 1, -1, tables)[:, :, None],
        kv_cache[:, : prefill + 1, None, :512], qv=latent[:, None], softmax_scale=192**-0.5)
    heads = x.new_empty(batch, 128, 128)
    torch.bmm(o[:, 0].transpose(0, 1), maps[:, 128:].transpose(1, 2), out=heads.transpose(0, 1))
    return (heads.view(batch, -1) @ config["wo_weight"].T)[:, None], row[:, None]
