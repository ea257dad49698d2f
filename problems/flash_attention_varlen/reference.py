# SPDX-License-Identifier: MIT
"""flash_attention_varlen (forward): attention within each of a batch of sequences packed one behind the other.

As flash_attention otherwise: grouped heads, bottom-right causal mask, rows without keys give o = 0 and lse = -inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from attention import STEEP_LEVELS, attention_bounds, attention_rows, dense_attention
from attention_queries import random_operands, visible_keys
from attention_sequences import PADDING, bounds, offsets, sequence_lengths
from utils import Expectation, check_outputs, default_device, generator, sample_positions


def generate_input(
    *, batch: int, tq: int, tk: int, lens: str, hq: int, hk: int, dim: int, causal: int, half: int, seed: int,
    steep: int = 0, device: Any = None,
) -> input_t:
    """(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale), see ``task.input_t``.

    Deterministic in ``seed`` per device. Values are drawn as ``attention_queries.random_operands`` says (with
    ``steep`` beyond the range of fp32's exponentials, in pieces of all keys one behind the other), softmax_scale is
    dim^-0.5. Keys that no query sees, those of sequences without queries and ``PADDING`` rows behind the last
    sequence, hold NaN in k and v.
    """
    place = default_device(device)
    lengths = sequence_lengths(batch, tq, tk, lens)
    lengths = [lengths[i] for i in torch.randperm(batch, generator=generator(seed, torch.device("cpu"))).tolist()]
    starts_q, starts_k = (offsets([pair[i] for pair in lengths], place) for i in (0, 1))
    dtype = torch.float16 if half else torch.bfloat16
    levels = STEEP_LEVELS if steep else ()
    q, k, v = (x[0] for x in random_operands(1, tq, tk + PADDING, hq, hk, dim, dtype, generator(seed, place), levels))
    k[tk:], v[tk:] = torch.nan, torch.nan
    for (queries, _), (first, last) in zip(lengths, bounds(starts_k), strict=True):
        if queries == 0:
            k[first:last], v[first:last] = torch.nan, torch.nan
    longest_q, longest_k = (max(pair[i] for pair in lengths) for i in (0, 1))
    return q, k, v, starts_q, starts_k, longest_q, longest_k, bool(causal), dim**-0.5


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (o, lse): two Expectations, fp64 mathematics, bounds as ``attention.attention_bounds`` derives them.

    ``sample`` limits both to about that many rows (row of q, head), chosen by ``seed``; ``index`` asks for exactly the
    rows of an o-Expectation's index instead. Touches no key that no query sees.
    """
    q, k, v, starts_q, starts_k, _, _, causal, scale = data
    total, hq, _ = q.shape
    hk, dim = v.shape[1:]
    group = hq // hk
    sequences = list(zip(bounds(starts_q), bounds(starts_k), strict=True))
    if index is None and sample is not None and sample < total * hq:
        index = tuple(part.to(q.device) for part in _sample_rows([pair[0] for pair in sequences], hq, sample, seed))
    if index is None:
        return _whole(data, sequences)
    r_of, h_of = (part.to(q.device) for part in index)
    o = torch.empty(len(r_of), dim, device=q.device)
    lse = torch.empty(len(r_of), device=q.device)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    for (first, last), (first_key, last_key) in sequences:
        mine = (r_of >= first) & (r_of < last)
        for h in torch.unique(h_of[mine] // group).tolist():
            here = (mine & (h_of // group == h)).nonzero().squeeze(1)
            visible = visible_keys(r_of[here] - first, last - first, last_key - first_key, causal)
            seen = slice(first_key, first_key + int(visible.max()))
            answer = attention_rows(q[r_of[here], h_of[here]], k[seen, h], v[seen, h], visible, scale)
            o[here], lse[here] = answer[0].float(), answer[2].float()
            limits = attention_bounds(*answer, q.dtype)
            o_bound[here], lse_bound[here] = limits[0].float(), limits[1].float()
    return (
        Expectation("o", o, o_bound, q.dtype, (total, hq, dim), (r_of, h_of)),
        Expectation("lse", lse, lse_bound, torch.float32, (hq, total), (h_of, r_of)),
    )


def _whole(data: input_t, sequences: list[tuple[tuple[int, int], tuple[int, int]]]) -> tuple[Expectation, ...]:
    """``expected`` of all rows."""
    q, k, v, _, _, _, _, causal, scale = data
    (total, hq, _), dim = q.shape, v.shape[-1]
    o, lse = torch.empty(hq, total, dim, device=q.device), torch.empty(hq, total, device=q.device)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    for (first, last), (first_key, last_key) in sequences:
        if first == last:                        # nobody sees its keys, which are NaN
            continue
        mine, seen = slice(first, last), slice(first_key, last_key)
        visible = visible_keys(torch.arange(last - first, device=q.device), last - first, last_key - first_key, causal)
        for heads, answer in dense_attention(q[None, mine], k[None, seen], v[None, seen], visible, scale):
            o[heads, mine], lse[heads, mine] = answer[0], answer[2]
            o_bound[heads, mine], lse_bound[heads, mine] = attention_bounds(*answer, q.dtype)
    o, o_bound = (x.transpose(0, 1).contiguous() for x in (o, o_bound))
    return (
        Expectation("o", o, o_bound, q.dtype, (total, hq, dim)),
        Expectation("lse", lse, lse_bound, torch.float32, (hq, total)),
    )


def _sample_rows(sequences: list[tuple[int, int]], hq: int, sample: int, seed: int) -> tuple[Tensor, Tensor]:
    """About ``sample`` rows as (row of q, head) index vectors: few (sequence, head) pairs with many queries each, since
    a pair costs a pass over its keys. Of the sequences with queries the first, the last, the shortest and the longest
    are among them.
    """
    rng = torch.Generator().manual_seed(seed)
    some = [pair for pair in sequences if pair[0] < pair[1]]
    by_length = sorted(some, key=lambda pair: pair[1] - pair[0])
    pairs = max(4, sample // 16)
    chosen = {(some[0], 0), (some[-1], hq - 1), (by_length[0], min(1, hq - 1)), (by_length[-1], hq - 1)}
    for _ in range(4, pairs):
        at = int(torch.randint(0, len(some), (), generator=rng))
        chosen.add((some[at], int(torch.randint(0, hq, (), generator=rng))))
    rows = []
    for (first, last), head in sorted(chosen):
        queries = first + sample_positions(last - first, max(8, sample // pairs), 64, rng)
        rows.append(torch.stack([queries, torch.full_like(queries, head)]))
    r_of, h_of = torch.cat(rows, dim=1)
    return r_of, h_of


def ref_kernel(data: input_t) -> output_t:
    """(o, lse) in the output dtypes."""
    o, lse = expected(data)
    return o.rounded(), lse.rounded().contiguous()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
