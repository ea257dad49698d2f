# SPDX-License-Identifier: MIT
"""Projections by the vendor's library and FlashMLA's dense decode between them, where `flash_mla` is installed.

FlashMLA reads a token's latent and rotary columns from one row, and the cache holds the rotary ones not rotated. A
Triton kernel rotates them where they are and keeps what was there; another one puts it back after the attention. Both
are inside the timed call: 640 bytes per token, where a rotated copy of whole rows would move 2304. Lengths follow from
the shapes, so FlashMLA's schedule and the page numbers are made once per shape and kept, as are the angles.
"""

import importlib

import torch
import triton
import triton.language as tl

library = importlib.import_module("flash_mla")     # by name: this file is called the same
PAGE, ROWS = 64, 32                                # tokens of a page; lines of a block of the kernels below
TABLES, SCHEDULES = {}, {}


def rotations(rows, device):
    """cos and sin, bf16 [rows, 32]; everything in bf16, as the challenge has it."""
    if (rows, device) not in TABLES:
        half = 10000 ** (-torch.arange(32, dtype=torch.bfloat16) / 32)
        angles = torch.arange(rows).to(torch.bfloat16)[:, None] * half
        TABLES[rows, device] = angles.cos().to(device), angles.sin().to(device)
    return TABLES[rows, device]


@triton.jit
def _turned(first, second, cos, sin, position):
    """Both halves of lines of 64 rotary columns, rotated to ``position``."""
    angle = position * 32 + tl.arange(0, 32)[None, :]
    c, s = tl.load(cos + angle).to(tl.float32), tl.load(sin + angle).to(tl.float32)
    return first * c - second * s, second * c + first * s


@triton.jit
def _rotate_queries(up, q, cos, sin, position, ROWS: tl.constexpr):
    line = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    half = tl.arange(0, 32)[None, :]
    read, write = up + line * 192 + 128 + half, q + line * 576 + 512 + half
    first, second = _turned(tl.load(read), tl.load(read + 32), cos, sin, position)
    tl.store(write, first)
    tl.store(write + 32, second)


@triton.jit
def _rotate_keys(cache, kept, cos, sin, tokens, max_len, ROWS: tl.constexpr):
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    request, half, exists = tl.program_id(1).to(tl.int64), tl.arange(0, 32)[None, :], token < tokens
    here = cache + (request * max_len + token) * 576 + 512 + half
    there = kept + (request * tokens + token) * 64 + half
    first, second = tl.load(here, exists), tl.load(here + 32, exists)
    tl.store(there, first, exists)
    tl.store(there + 32, second, exists)
    first, second = _turned(first, second, cos, sin, tl.minimum(token, tokens - 1))
    tl.store(here, first, exists)
    tl.store(here + 32, second, exists)


@triton.jit
def _put_back(cache, kept, tokens, max_len, ROWS: tl.constexpr):
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    request, column, exists = tl.program_id(1).to(tl.int64), tl.arange(0, 64)[None, :], token < tokens
    was = tl.load(kept + (request * tokens + token) * 64 + column, exists)
    tl.store(cache + (request * max_len + token) * 576 + 512 + column, was, exists)


def scheduled(batch, tokens, max_len, device):
    """(page numbers, lengths, FlashMLA's schedule) of requests that lie one behind the other in the cache."""
    shape = batch, tokens, max_len, device
    if shape not in SCHEDULES:       # the first call with the schedule fills it in
        table = torch.arange(batch * max_len // PAGE, dtype=torch.int32, device=device).view(batch, -1)
        lengths = torch.full((batch,), tokens, dtype=torch.int32, device=device)
        SCHEDULES[shape] = table, lengths, library.get_mla_metadata()[0]
    return SCHEDULES[shape]


def attention(q, kv_cache, tokens, cos, sin):
    """[batch, 128, 512] latent outputs of rotated queries over the first ``tokens`` rows of every request."""
    batch, max_len, _ = kv_cache.shape
    table, lengths, schedule = scheduled(batch, tokens, max_len, q.device)
    kept = q.new_empty(batch, tokens, 64)
    grid = triton.cdiv(tokens, ROWS), batch
    _rotate_keys[grid](kv_cache, kept, cos, sin, tokens, max_len, ROWS)
    o, _ = library.flash_mla_with_kvcache(
        q[:, None], kv_cache.view(-1, PAGE, 1, 576), table, lengths, 512, schedule, softmax_scale=192**-0.5,
        causal=False)
    _put_back[grid](kv_cache, kept, tokens, max_len, ROWS)
    return o[:, 0]


def custom_kernel(data):
    config, x, kv_cache = data
    x, batch, prefill = x[:, 0], len(x), config["prefill"]
    cos, sin = rotations(kv_cache.shape[1], x.device)
    maps = config["KV_proj_up_weight"].view(128, 256, 512)
    row = x @ config["KV_proj_down_weight"].T
    kv_cache[:, prefill] = row
    up = ((x @ config["Q_proj_down_weight"].T) @ config["Q_proj_up_weight"].T).view(batch, 128, 192)
    q = x.new_empty(batch, 128, 576)
    torch.bmm(up[..., :128].transpose(0, 1), maps[:, :128], out=q[..., :512].transpose(0, 1))
    _rotate_queries[batch * 128 // ROWS,](up, q, cos, sin, prefill, ROWS)
    o = attention(q, kv_cache, prefill + 1, cos, sin)
    heads = x.new_empty(batch, 128, 128)
    torch.bmm(o.transpose(0, 1), maps[:, 128:].transpose(1, 2), out=heads.transpose(0, 1))
    return (heads.view(batch, -1) @ config["wo_weight"].T)[:, None], row[:, None]
