# SPDX-License-Identifier: MIT
"""Decoding over a paged cache of latent tokens, shared by mla_decode and mla_decode_fp8: inputs, rows, wrong answers.

A token has 576 columns, 512 latent and 64 rotary ones. Scores use all of them, values are the first 512.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attention import at_once, decode_lengths, steep_levels, without_maximum
from utils import Expectation, Mutant, generator, sample_positions

PAGE = 64                     # tokens of a page
WIDTH, LATENT = 576, 512      # columns of a token, and how many of them are its value
BLOCK = 128                   # latent columns that are of one size, where sizes vary
# DeepSeek-V3's softmax scale: before absorption a head's query and key have 128 + 64 columns.
SOFTMAX_SCALE = 192.0**-0.5

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]
# (rows [..., r, 576], tokens [..., s, 576], visible [..., r], scale) -> (o [..., r, 512], lse [..., r], their bounds)
Rows = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor, Tensor]]


def paged_batch(
    *, batch: int, sq: int, hq: int, sk: int, lens: str, seed: int, place: torch.device, levels: bool = False,
    steep: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(q, kv_cache bf16, block_table, seqlens) as mla_decode's ``task.input_t`` says; deterministic in ``seed``.

    q and cache are standard normal, so scores have a standard deviation of sqrt(576/192) = 1.7: a softmax far from
    uniform (half of the weight on about 1 token in 25). With ``levels`` each 128 latent columns of each token are
    larger by a factor of their own, 2^U(-1, 1). To make single tokens matter even in 32768, four tokens per
    request are needles: their rows lean towards the queries of two heads each, enough to draw about a third of the
    weight there. One of them is the last token (heads 0 and hq-1), so that a stale length or a missing causal
    mask shows; the others are at random. Pages are a random permutation of the cache, of which page 0 has no owner, so
    that pages read in order are never the right ones; slots beyond a length and pages without an owner hold NaN; table
    entries beyond a request's pages are random block numbers.

    With ``steep`` scores rise and fall along the tokens beyond the range of fp32's exponentials, as
    ``attention.steep_levels`` says: every 8 heads of a query have 1, 0 or -1 added to all columns, and the rotary
    columns of a token a number of its own. (8 rows are whole windows of what the judge's chain draws anew.)
    """
    rng = generator(seed, place)
    lengths = torch.tensor(decode_lengths(batch, sk, lens))
    lengths = lengths[torch.randperm(batch, generator=generator(seed, torch.device("cpu")))]
    pages = (lengths + PAGE - 1) // PAGE
    live = int(pages.sum())
    num_blocks = live + 2 + live // 16

    q = torch.randn(batch, sq, hq, WIDTH, generator=rng, device=place).to(torch.bfloat16)
    kv_cache = torch.empty(num_blocks, PAGE, 1, WIDTH, dtype=torch.bfloat16, device=place)
    for part in kv_cache.split(1024):            # in parts: the fp32 normals of a whole cache would be gigabytes
        normal = torch.randn(part.shape, generator=rng, device=place)
        if levels:
            level = 2 * torch.rand(*part.shape[:3], LATENT // BLOCK, 1, generator=rng, device=place) - 1
            normal[..., :LATENT].unflatten(-1, (-1, BLOCK)).mul_(level.exp2_())
        part.copy_(normal)

    order = 1 + torch.randperm(num_blocks - 1, generator=rng, device=place).to(torch.int32)
    block_table = torch.randint(
        0, num_blocks, (batch, (sk + PAGE - 1) // PAGE), generator=rng, device=place, dtype=torch.int32)
    kv_cache[0] = torch.nan
    kv_cache[order[live:].long()] = torch.nan
    owned = torch.arange(block_table.shape[1]) < pages[:, None]
    block_table.masked_scatter_(owned.to(place), order[:live])
    open_ended = lengths % PAGE > 0              # the last page of such a request is not full
    last = order[(pages.cumsum(0) - 1)[open_ended].to(place)].long()
    beyond = torch.arange(PAGE) >= lengths[open_ended, None] % PAGE
    kv_cache[last] = kv_cache[last].masked_fill_(beyond[..., None, None].to(place), torch.nan)

    seqlens = lengths.to(device=place, dtype=torch.int32)
    _plant_needles(q, kv_cache, block_table, seqlens, rng)
    if steep:
        groups = torch.arange(batch * sq * hq // 8, device=place) + torch.randint(0, 3, (), generator=rng, device=place)
        signs = (groups % 3 - 1).view(batch, sq, -1, 1).repeat_interleave(8, 2)
        q = (q.float() + signs).to(torch.bfloat16)
        token = torch.arange(block_table.shape[1] * PAGE, device=place)
        added = steep_levels(len(token), place) / ((WIDTH - LATENT) * SOFTMAX_SCALE)
        for request, length in enumerate(lengths.tolist()):
            at = token[:length]
            slots = block_table[request, at // PAGE].long(), at % PAGE, 0, slice(LATENT, None)
            kv_cache[slots] = (kv_cache[slots].float() + added[request % 2, :length, None]).to(torch.bfloat16)
    return q, kv_cache, block_table, seqlens


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


def expected_rows(
    data: Any, sample: int | None, seed: int, index: tuple[Tensor, ...] | None, tokens_in: Callable[[Tensor], Tensor],
    rows_of: Rows,
) -> tuple[Expectation, ...]:
    """The expected (o, lse): two Expectations. ``tokens_in`` makes tokens [..., 576] of rows of the cache [..., width].

    ``sample`` limits both to about that many rows (request, query, head), chosen by ``seed``; ``index`` asks for
    exactly the rows of an o-Expectation's index instead.
    """
    q, _, _, seqlens, causal, scale = data
    batch, sq, hq, _ = q.shape
    if index is None and sample is not None and sample < batch * sq * hq:
        index = tuple(part.to(q.device) for part in _sample_rows(seqlens.tolist(), sq, hq, sample, seed))
    if index is None:
        return _all_rows(data, tokens_in, rows_of)
    b_of, i_of, h_of = (part.to(q.device) for part in index)
    o = torch.empty(len(b_of), LATENT, device=q.device)
    lse = torch.empty(len(b_of), device=q.device)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    lengths = seqlens.tolist()
    for b in torch.unique(b_of).tolist():
        here = (b_of == b).nonzero().squeeze(1)
        visible = lengths[b] - (sq - 1 - i_of[here] if causal else torch.zeros_like(here))
        answer = rows_of(q[b, i_of[here], h_of[here]], tokens_in(rows_of_request(data, b)), visible, scale)
        for full, part in zip((o, lse, o_bound, lse_bound), answer, strict=True):
            full[here] = part.float()
    return (
        Expectation("o", o, o_bound, torch.bfloat16, (batch, sq, hq, LATENT), (b_of, i_of, h_of)),
        Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq), (b_of, h_of, i_of)),
    )


def _all_rows(data: Any, tokens_in: Callable[[Tensor], Tensor], rows_of: Rows) -> tuple[Expectation, ...]:
    """``expected_rows`` of all rows: requests of about one length together, as each by itself leaves a GPU idle."""
    q, _, _, seqlens, causal, scale = data
    batch, sq, hq, _ = q.shape
    o = torch.empty(batch, sq * hq, LATENT, device=q.device)
    lse = torch.empty(batch, sq * hq, device=q.device)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    behind = torch.arange(sq, device=q.device).flip(0) if causal else torch.zeros(sq, device=q.device)     # of the last
    lengths = seqlens.tolist()
    order = sorted(range(batch), key=lambda b: lengths[b])
    for some in at_once(batch, sq * hq, max(lengths), WIDTH, q.device):
        longest = max(0, lengths[order[some.stop - 1]])
        which = torch.tensor(order[some], device=q.device)
        visible = (seqlens[which, None] - behind.int()).repeat_interleave(hq, 1)
        answer = rows_of(q[which].flatten(1, 2), tokens_in(_rows_of_requests(data, which, longest)), visible, scale)
        for full, part in zip((o, lse, o_bound, lse_bound), answer, strict=True):
            full[which] = part.float()
    shape = (batch, sq, hq, LATENT)
    lse, lse_bound = (part.view(batch, sq, hq).transpose(1, 2) for part in (lse, lse_bound))
    return (
        Expectation("o", o.view(shape), o_bound.view(shape), torch.bfloat16, shape),
        Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq)),
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


def rows_of_request(data: Any, request: int) -> Tensor:
    """The cache rows of a request's tokens, [length, whatever a row holds]."""
    length = int(data[3][request])
    return _rows_of_requests(data, torch.tensor([request], device=data[3].device), length)[0]


def _rows_of_requests(data: Any, which: Tensor, longest: int) -> Tensor:
    """The cache rows of the tokens of some requests, [len(which), longest, whatever a row holds]: zero bytes in the
    place of what lies beyond a length, where anything may be."""
    _, kv_cache, block_table, seqlens, *_ = data
    dtype, lengths = kv_cache.dtype, seqlens[which]
    if dtype.itemsize == 1:                      # torch gathers bytes on every device, fp8 not on all
        kv_cache = kv_cache.view(torch.uint8)
    pages = block_table[which, : (longest + PAGE - 1) // PAGE].long()
    rows = kv_cache[pages].view(len(which), -1, kv_cache.shape[-1])[:, :longest]
    beyond = torch.arange(longest, device=which.device) >= lengths[:, None]
    return rows.masked_fill(beyond.unsqueeze(-1), 0).view(dtype)


# ---- wrong answers --------------------------------------------------------------------------------------------------

def _queries(function: Callable[[Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Turn a change of q into a change of the data."""
    return lambda case, data: (function(data[0]), *data[1:])


def _lengths(function: Callable[[Case, Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Turn a change of the lengths into a change of the data."""
    return lambda case, data: (*data[:3], function(case, data[3]), *data[4:])


def _tokens_cut(function: Callable[[Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Tokens from ``function(lengths)`` on are not read by any query (so a causal mask has nothing left to hide)."""
    return lambda case, data: (*data[:3], function(data[3]), False, data[5])


def _without_rope(q: Tensor) -> Tensor:
    q = q.clone()
    q[..., LATENT:] = 0
    return q


def _identity_pages(case: Case, data: Any) -> Any:
    q, kv_cache, block_table, *rest = data
    pages = torch.arange(block_table.numel(), device=q.device) % kv_cache.shape[0]
    return (q, kv_cache, pages.view_as(block_table).to(torch.int32), *rest)


def _half_copied(case: Case, data: Any) -> Any:
    """The second half of the batch asks what the first half asked."""
    q, kv_cache, block_table, seqlens, *rest = data
    half = len(q) // 2

    def copied(x: Tensor) -> Tensor:
        return torch.cat([x[:half], x[:half], x[2 * half :]])

    return (copied(q), kv_cache, copied(block_table), copied(seqlens), *rest)


def _no_mask(case: Case, data: Any) -> Any:
    return *data[:4], False, data[5]


def _scale(value: float) -> Callable[[Case, Any], Any]:
    return lambda case, data: (*data[:5], value)


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return tuple(torch.zeros_like(output) for output in outputs)


def _copied(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return (data[0][..., :LATENT] * data[5]).to(outputs[0].dtype), torch.zeros_like(outputs[1])


def _last_heads(case: Case, data: Any, outputs: Outputs) -> Outputs:
    o, lse = (output.clone() for output in outputs)
    o[:, :, -8:] = 0
    lse[:, -8:] = 0
    return o, lse


def _last_columns(case: Case, data: Any, outputs: Outputs) -> Outputs:
    o = outputs[0].clone()
    o[..., -64:] = 0
    return o, outputs[1]


def _binary_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1] / math.log(2.0)


def _finite_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1].clamp_min(-1e30)


def _without_maximum(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return without_maximum(*outputs)


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("o and lse are zero", transform_outputs=_zeros),
    "input_copied": Mutant("o is the scaled latent part of q, lse zero: no cache read", transform_outputs=_copied),
    "uniform_attention": Mutant("o is the mean of the values", transform_data=_queries(torch.zeros_like)),
    "half_of_tokens_skipped": Mutant("the first half of every request", transform_data=_tokens_cut(lambda n: n // 2)),
    "last_page_skipped": Mutant(
        "all pages but a request's last", transform_data=_tokens_cut(lambda n: (n - 1).clamp_min(0) // PAGE * PAGE)),
    "stale_length": Mutant(
        "the newest token not read", transform_data=_lengths(lambda case, n: (n - 1).clamp_min(0))),
    "lengths_ignored": Mutant(
        "every request as long as the longest",
        transform_data=_lengths(lambda case, n: torch.full_like(n, case["sk"])),
        applies=lambda case: case["lens"] != "uniform" and case["batch"] > 1),
    "block_table_ignored": Mutant("pages in order", transform_data=_identity_pages),
    "rope_ignored": Mutant("scores from the 512 latent columns alone", transform_data=_queries(_without_rope)),
    "mask_ignored": Mutant("all queries see all tokens", transform_data=_no_mask,
                           applies=lambda case: bool(case["causal"]) and case["sq"] > 1),
    "scale_ignored": Mutant("softmax scale 1", transform_data=_scale(1.0)),
    "scale_of_width": Mutant("softmax scale 576^-0.5", transform_data=_scale(WIDTH**-0.5)),
    "first_head_for_all": Mutant("all heads ask what head 0 asks",
                                 transform_data=_queries(lambda q: q[:, :, :1].expand_as(q))),
    "second_half_copies_first": Mutant("the second half of the batch repeats the first", transform_data=_half_copied,
                                       applies=lambda case: case["batch"] > 1),
    "last_heads_not_computed": Mutant("the last 8 heads left at zero", transform_outputs=_last_heads),
    "last_columns_not_computed": Mutant("the last 64 value columns left at zero", transform_outputs=_last_columns),
    "max_not_subtracted": Mutant(
        "exponentials in fp32 of scores, no maximum subtracted", transform_outputs=_without_maximum,
        applies=lambda case: bool(case.get("steep"))),
    "lse_base_2": Mutant("lse in base 2", transform_outputs=_binary_lse),
    "lse_finite": Mutant(
        "queries without a token get a finite lse", transform_outputs=_finite_lse,
        applies=lambda case: case["lens"] == "mixed" and case["batch"] > 1),
}
