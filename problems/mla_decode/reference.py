# SPDX-License-Identifier: MIT
"""mla_decode: DeepSeek's absorbed multi-head latent attention over a paged bf16 cache, one KV head, 1 or 2 queries.

Scores use all 576 columns of a token (512 latent, 64 rotary), values are the first 512.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from attention import attention_bounds, attention_rows, decode_lengths
from utils import Expectation, check_outputs, default_device, generator, sample_positions

PAGE = 64                     # tokens of a page
WIDTH, LATENT = 576, 512      # columns of a token, and how many of them are its value
# DeepSeek-V3's softmax scale: before absorption a head's query and key have 128 + 64 columns.
SOFTMAX_SCALE = 192.0**-0.5


def generate_input(
    *, batch: int, sq: int, hq: int, sk: int, lens: str, causal: int, seed: int, device: Any = None,
) -> input_t:
    """(q, kv_cache, block_table, seqlens, causal, softmax_scale) as ``task.input_t`` says; deterministic in ``seed``.

    q and cache are standard normal, so scores have a standard deviation of sqrt(576/192) = 1.7: a softmax far from
    uniform (half of the weight on about 1 token in 25). To make single tokens matter even in 32768, four tokens per
    request are needles: their rows lean towards the queries of two heads each, enough to draw about a third of the
    weight there. One of them is the last token (heads 0 and hq-1), so that a stale length or a missing causal
    mask shows; the others are at random. Pages are a random permutation of the cache, of which page 0 has no owner, so
    that pages read in order are never the right ones; slots beyond a length and pages without an owner hold NaN; table
    entries beyond a request's pages are random block numbers.
    """
    place = default_device(device)
    rng = generator(seed, place)
    lengths = torch.tensor(decode_lengths(batch, sk, lens))
    lengths = lengths[torch.randperm(batch, generator=generator(seed, torch.device("cpu")))]
    pages = (lengths + PAGE - 1) // PAGE
    live = int(pages.sum())
    num_blocks = live + 2 + live // 16

    q = torch.randn(batch, sq, hq, WIDTH, generator=rng, device=place).to(torch.bfloat16)
    kv_cache = torch.empty(num_blocks, PAGE, 1, WIDTH, dtype=torch.bfloat16, device=place)
    for part in kv_cache.split(1024):            # in parts: the fp32 normals of a whole cache would be gigabytes
        part.copy_(torch.randn(part.shape, generator=rng, device=place))

    order = 1 + torch.randperm(num_blocks - 1, generator=rng, device=place).to(torch.int32)
    block_table = torch.randint(
        0, num_blocks, (batch, (sk + PAGE - 1) // PAGE), generator=rng, device=place, dtype=torch.int32)
    kv_cache[0] = torch.nan
    kv_cache[order[live:].long()] = torch.nan
    start = 0
    for b, (length, count) in enumerate(zip(lengths.tolist(), pages.tolist(), strict=True)):
        block_table[b, :count] = order[start : start + count]
        start += count
        if length % PAGE:
            kv_cache[int(order[start - 1]), length % PAGE :] = torch.nan

    seqlens = lengths.to(device=place, dtype=torch.int32)
    _plant_needles(q, kv_cache, block_table, seqlens, rng)
    return q, kv_cache, block_table, seqlens, bool(causal), SOFTMAX_SCALE


def _plant_needles(q: Tensor, kv_cache: Tensor, block_table: Tensor, seqlens: Tensor, rng: torch.Generator) -> None:
    """Let four tokens of every request lean towards two heads each, in place.

    A token k + β·q_h gains 576·β·scale in head h's score. The weights of n normal tokens add up to about n·e^1.5, so
    β = (1 + ln n) / (576·scale) puts about n·e against n·e^1.5: a third of the weight.
    """
    tokens = kv_cache.view(-1, WIDTH)
    owner = (seqlens > 0).nonzero().squeeze(1)
    length = seqlens[owner].long()
    beta = (1 + length.float().log()) / (WIDTH * SOFTMAX_SCALE)
    heads = q.shape[2]
    for needle in range(4):
        if needle == 0:
            at, pair = length - 1, torch.tensor([0, heads - 1], device=q.device).expand(len(owner), 2)
        else:
            at = (torch.rand(len(owner), generator=rng, device=q.device) * length).long().clamp_max(length - 1)
            pair = torch.randint(0, heads, (len(owner), 2), generator=rng, device=q.device)
        row = block_table[owner, at // PAGE].long() * PAGE + at % PAGE        # distinct: one per request
        lean = q[owner[:, None], :, pair].float().sum((1, 2)) * beta[:, None]
        tokens[row] = (tokens[row].float() + lean).to(torch.bfloat16)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """What (o, lse) must be: two Expectations, fp64 mathematics, bounds as ``attention.attention_bounds`` derives them.

    ``sample`` limits both to about that many rows (request, query, head), chosen by ``seed``; ``index`` asks for
    exactly the rows of an o-Expectation's index instead. Touches no slot beyond a request's length.
    """
    q, kv_cache, block_table, seqlens, causal, scale = data
    batch, sq, hq, _ = q.shape
    if index is None and sample is not None and sample < batch * sq * hq:
        index = tuple(part.to(q.device) for part in _sample_rows(seqlens.tolist(), sq, hq, sample, seed))

    if index is None:
        grid = torch.meshgrid(*(torch.arange(size, device=q.device) for size in (batch, sq, hq)), indexing="ij")
        b_of, i_of, h_of = (part.flatten() for part in grid)
    else:
        b_of, i_of, h_of = (part.to(q.device) for part in index)
    o = torch.empty(len(b_of), LATENT, device=q.device)
    lse = torch.empty(len(b_of), device=q.device)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    lengths = seqlens.tolist()
    for b in torch.unique(b_of).tolist():
        here = (b_of == b).nonzero().squeeze(1)
        tokens = kv_cache[block_table[b, : (lengths[b] + PAGE - 1) // PAGE].long()].reshape(-1, WIDTH)[: lengths[b]]
        visible = lengths[b] - (sq - 1 - i_of[here] if causal else torch.zeros_like(here))
        rows = q[b, i_of[here], h_of[here]]
        answer = attention_rows(rows, tokens, tokens[:, :LATENT], visible, scale)
        o[here], lse[here] = answer[0].float(), answer[2].float()
        bounds = attention_bounds(*answer, q.dtype)
        o_bound[here], lse_bound[here] = bounds[0].float(), bounds[1].float()

    shape = (batch, sq, hq, LATENT)
    if index is None:
        o, o_bound = o.view(shape), o_bound.view(shape)
        lse, lse_bound = (part.view(batch, sq, hq).transpose(1, 2) for part in (lse, lse_bound))
        return (
            Expectation("o", o, o_bound, torch.bfloat16, shape),
            Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq)),
        )
    return (
        Expectation("o", o, o_bound, torch.bfloat16, shape, (b_of, i_of, h_of)),
        Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq), (b_of, h_of, i_of)),
    )


def _sample_rows(lengths: list[int], sq: int, hq: int, sample: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """About ``sample`` rows as (request, query, head) index vectors: few requests (each costs a pass over its tokens),
    of which all queries and up to 16 heads. The first, last, shortest and longest request, heads 0, 1 and the last
    are included.
    """
    rng = torch.Generator().manual_seed(seed)
    batch = len(lengths)
    heads = sample_positions(hq, min(16, max(4, sample // 4)), 16, rng)
    count = max(1, sample // (sq * len(heads)))
    requests = {0, batch - 1, lengths.index(min(lengths)), lengths.index(max(lengths))}
    requests |= set(torch.randint(0, batch, (max(0, count - len(requests)),), generator=rng).tolist())
    grid = torch.meshgrid(torch.tensor(sorted(requests)), torch.arange(sq), heads, indexing="ij")
    b_of, i_of, h_of = (part.flatten() for part in grid)
    return b_of, i_of, h_of


def ref_kernel(data: input_t) -> output_t:
    """(o, lse) in the output dtypes."""
    o, lse = expected(data)
    return o.rounded(), lse.rounded().contiguous()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
