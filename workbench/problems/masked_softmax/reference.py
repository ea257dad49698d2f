# SPDX-License-Identifier: MIT
"""masked_softmax: softmax over the keys that a query sees, and KV heads repeated for their groups."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import lengths_of
from utils import Expectation, check_outputs, default_device, generator, sample_positions

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"output": 2.0**-11 + 2.0**-15, "subnormal": 2.0**-25}
WINDOW = 512          # scores: the 256 words of the judge's chain


def whole_windows(hidden: Tensor) -> Tensor:
    """Of ``hidden`` (bool, any shape) what lies in windows of ``WINDOW`` elements that are hidden from end to end."""
    flat = torch.nn.functional.pad(hidden.reshape(-1), (0, -hidden.numel() % WINDOW), value=True)
    kept = flat.view(-1, WINDOW) & flat.view(-1, WINDOW).all(-1, keepdim=True)
    return kept.view(-1)[: hidden.numel()].view(hidden.shape)


def generate_input(
    *, batch: int, hq: int, group: int, sq: int, sk: int, dim: int, bias: str, causal: int, seed: int,
    device: Any = None,
) -> input_t:
    """(scores, bias, lengths, v, causal). Deterministic in ``seed`` per device.

    Scores are normal times 3, bias is normal. Behind a request's length half of the scores are infinite or NaN, where
    ``WINDOW`` scores on end are hidden: the judge's chain redraws scores from their window, and must show none.
    """
    place = default_device(device)
    rng = generator(seed, place)
    order = torch.randperm(batch, generator=rng, device=place)
    lengths = torch.tensor(lengths_of(batch, sk), dtype=torch.int32, device=place)[order]
    scores = (3 * torch.randn(batch, hq, sq, sk, generator=rng, device=place)).half()
    behind = (torch.arange(sk, device=place) >= lengths[:, None])[:, None, None, :].expand(scores.shape)
    behind = whole_windows(behind)
    kind = torch.rand(1, 1, sq, sk, generator=rng, device=place).expand(scores.shape)
    scores[behind & (kind < 0.25)] = math.nan
    scores[behind & (kind > 0.75)] = math.inf
    shape = {"none": (1,), "head": (hq, sq, sk), "full": (batch, hq, sq, sk)}[bias]
    added = torch.zeros(1, device=place) if bias == "none" else torch.randn(shape, generator=rng, device=place)
    v = torch.randn(batch, hq // group, sk, dim, generator=rng, device=place)
    return scores, added.half(), lengths, v.half(), bool(causal)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (p, repeated). ``sample`` limits both to about that many rows, chosen by ``seed``; ``index`` asks
    for exactly these rows (batch, head, query) of p instead.

    The bound per element of p is (2^-11 + 2^-15)·p + 2^-25: one rounding to fp16, and 2^-15 of p for fp32 arithmetic:
    score plus bias, of at most 32 in size, is rounded at 2^-20, which the exponential makes a share of p; exponentials
    of the special function unit and the sum add 2^-21 each. Masked elements and copies are exact: bound 0.
    """
    scores, bias, lengths, v, causal = data
    batch, hq, sq, sk = scores.shape
    hk, place = v.shape[1], scores.device
    total = batch * hq * sq
    if index is None and sample is not None and total > sample:
        chosen = sample_positions(total, sample, 64, torch.Generator().manual_seed(seed)).to(place)
        index = tuple(torch.unravel_index(chosen, (batch, hq, sq)))
    every = tuple(torch.unravel_index(torch.arange(total, device=place), (batch, hq, sq)))
    b, h, i = every if index is None else index
    rows = scores[b, h, i].double()
    if bias.ndim == 3:
        rows = rows + bias[h, i]
    elif bias.ndim == 4:
        rows = rows + bias[b, h, i]
    keys = torch.arange(sk, device=place)
    seen = keys < lengths[b][:, None]
    if causal:
        seen = seen & (keys <= (i + sk - sq)[:, None])
    rows = torch.where(seen, rows, -math.inf)
    p = torch.where(seen, torch.softmax(rows, 1), 0.0)
    bound = torch.where(seen, BOUND["output"] * p + BOUND["subnormal"], 0.0)
    part = None
    if index is None:
        p, bound = p.view(scores.shape), bound.view(scores.shape)
        copies = v.repeat_interleave(hq // hk, 1).float()
    else:
        row = i % sk
        part = (b, h, row)
        copies = v[b, h // (hq // hk), row].float()
    return (
        Expectation("p", p, bound, torch.float16, tuple(scores.shape), index),
        Expectation("repeated", copies, torch.zeros_like(copies), torch.float16, (batch, hq, sk, v.shape[3]), part),
    )


def ref_kernel(data: input_t) -> output_t:
    """(p, repeated) in fresh memory."""
    return tuple(expectation.rounded() for expectation in expected(data))


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
