# SPDX-License-Identifier: MIT
"""Attention: the forward pass with running softmax, and decoding over pages with a second kernel's worth of work."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, normal, poisoned, program

_LOG2_E = 1.4426950408889634


@triton.jit
def attention_kernel(q, k, v, out, logs, queries, keys, scale, CAUSAL: tl.constexpr, DIM: tl.constexpr,
                     ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    head = tl.program_id(1)
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DIM)
    query = tl.load(q + head * queries * DIM + i[:, None] * DIM + d[None, :], mask=i[:, None] < queries, other=0.0)
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM], tl.float32)
    last = keys
    if CAUSAL:
        last = min(keys, tl.program_id(0) * ROWS + ROWS + keys - queries)
    for start in range(0, last, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        key = tl.load(k + head * keys * DIM + j[None, :] * DIM + d[:, None], mask=j[None, :] < keys, other=0.0)
        score = tl.dot(query, key) * scale
        live = j[None, :] < keys
        if CAUSAL:
            live = live & (j[None, :] <= i[:, None] + keys - queries)
        score = tl.where(live, score, -float("inf"))
        new = tl.maximum(largest, tl.max(score, 1))
        share = tl.exp2(largest - new)
        p = tl.exp2(score - new[:, None])
        total = total * share + tl.sum(p, 1)
        value = tl.load(v + head * keys * DIM + j[:, None] * DIM + d[None, :], mask=j[:, None] < keys, other=0.0)
        sums = sums * share[:, None] + tl.dot(p.to(value.dtype), value)
        largest = new
    tl.store(out + head * queries * DIM + i[:, None] * DIM + d[None, :],
             (sums / total[:, None]).to(out.dtype.element_ty), mask=i[:, None] < queries)
    tl.store(logs + head * queries + i, (largest + tl.log2(total)) / 1.4426950408889634, mask=i < queries)


def _reference(q, k, v, causal):
    scores = (q.double() @ k.double().mT) * q.shape[-1] ** -0.5
    if causal:
        queries, keys = scores.shape[-2:]
        scores = scores.masked_fill(~torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries), -torch.inf)
    return scores.softmax(-1) @ v.double(), scores.logsumexp(-1)


@program("attention_f16_d64", dtype=torch.float16, dim=64, causal=False)
@program("attention_f16_d64_causal", dtype=torch.float16, dim=64, causal=True)
@program("attention_bf16_d128", dtype=torch.bfloat16, dim=128, causal=False)
@program("attention_bf16_d128_causal", dtype=torch.bfloat16, dim=128, causal=True, options={"num_warps": 8})
@program("attention_f16_d64_nonkdim_32", dtype=torch.float16, dim=64, causal=True,
         options={"matrix_instr_nonkdim": 32, "waves_per_eu": 2})
@program("attention_f16_d64_one_stage", dtype=torch.float16, dim=64, causal=True, options={"num_stages": 1})
@program("attention_bf16_d64_global_loads", dtype=torch.bfloat16, dim=64, causal=True, buffer_ops=False)
def attention(generator, dtype, dim, causal, options=None, buffer_ops=True):
    heads, queries, keys, rows, columns = 2, 70, 130, 64, 32
    q, k, v = (normal(generator, heads, length, dim, dtype=dtype) for length in (queries, keys, keys))
    wanted, logs = _reference(q, k, v, causal)
    unit = 2**-10 if dtype is torch.float16 else 2**-7
    return Launch(attention_kernel, (2, heads),
                  {"q": q, "k": k, "v": v, "out": poisoned(heads, queries, dim, dtype=dtype),
                   "logs": poisoned(heads, queries), "queries": queries, "keys": keys,
                   "scale": dim ** -0.5 * _LOG2_E},
                  {"out": Expected(wanted.to(dtype), rtol=2 * unit, atol=2 * unit),
                   "logs": Expected(logs.float(), rtol=1e-4, atol=1e-4)},
                  {"CAUSAL": causal, "DIM": dim, "ROWS": rows, "COLUMNS": columns}, options or {}, buffer_ops)


@triton.jit
def decode_kernel(q, pages, table, lengths, out, table_width, scale, HEADS: tl.constexpr, DIM: tl.constexpr,
                  PAGE: tl.constexpr):
    sequence = tl.program_id(0)
    h = tl.arange(0, HEADS)
    d = tl.arange(0, DIM)
    slot = tl.arange(0, PAGE)
    length = tl.load(lengths + sequence)
    query = tl.load(q + sequence * HEADS * DIM + h[:, None] * DIM + d[None, :])
    largest = tl.full([HEADS], -float("inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    sums = tl.zeros([HEADS, DIM], tl.float32)
    for index in range(0, tl.cdiv(length, PAGE)):
        page = tl.load(table + sequence * table_width + index).to(tl.int64)
        base = pages + page * PAGE * DIM
        live = index * PAGE + slot < length
        rows = tl.load(base + slot[:, None] * DIM + d[None, :], mask=live[:, None], other=0.0)
        score = tl.where(live[None, :], tl.dot(query, tl.trans(rows)) * scale, -float("inf"))
        new = tl.maximum(largest, tl.max(score, 1))
        share = tl.exp2(largest - new)
        p = tl.exp2(score - new[:, None])
        total = total * share + tl.sum(p, 1)
        sums = sums * share[:, None] + tl.dot(p.to(rows.dtype), rows)
        largest = new
    tl.store(out + sequence * HEADS * DIM + h[:, None] * DIM + d[None, :], (sums / total[:, None]).to(tl.bfloat16))


@program("paged_decode_bf16")
def decode(generator):
    """Keys and values are the same latent rows, as in MLA."""
    sequences, heads, dim, page, count = 3, 16, 128, 16, 12
    lengths = torch.tensor([1, 37, 64], dtype=torch.int32)
    q, pages = normal(generator, sequences, heads, dim, dtype=torch.bfloat16), normal(
        generator, count, page, dim, dtype=torch.bfloat16)
    table = torch.stack([torch.randperm(count, generator=generator)[:4] for _ in range(sequences)]).int()
    rows = [pages[table[s].long()].flatten(0, 1)[: lengths[s]] for s in range(sequences)]
    wanted = torch.stack([_reference(q[s], rows[s], rows[s], False)[0] for s in range(sequences)])
    return Launch(decode_kernel, (sequences,),
                  {"q": q, "pages": pages, "table": table, "lengths": lengths, "table_width": 4,
                   "out": poisoned(sequences, heads, dim, dtype=torch.bfloat16), "scale": dim ** -0.5 * _LOG2_E},
                  {"out": Expected(wanted.bfloat16(), rtol=2**-6, atol=2**-6)},
                  {"HEADS": heads, "DIM": dim, "PAGE": page})
