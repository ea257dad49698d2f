# SPDX-License-Identifier: MIT
"""flash_attention (forward): softmax(scale · q kᵀ + mask) v and the log-sum-exp per row, bf16 or fp16.

Grouped heads, bottom-right causal mask, any sequence lengths; rows that see no key give o = 0 and lse = -inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from attention import STEEP_LEVELS, attention_bounds, attention_rows, dense_attention
from attention_queries import random_operands, sample_rows, visible_keys
from utils import Expectation, check_outputs, default_device, generator


def generate_input(
    *, batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, causal: int, half: int, seed: int, steep: int = 0,
    device: Any = None,
) -> input_t:
    """(q, k, v, causal, softmax_scale) as ``task.input_t`` says. Deterministic in ``seed`` per device.

    Drawn as ``attention_queries.random_operands`` says, with ``steep`` beyond the range of fp32's exponentials;
    softmax_scale = dim^-0.5.
    """
    place = default_device(device)
    dtype = torch.float16 if half else torch.bfloat16
    levels = STEEP_LEVELS if steep else ()
    q, k, v = random_operands(batch, sq, sk, hq, hk, dim, dtype, generator(seed, place), levels)
    return q, k, v, bool(causal), dim**-0.5


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (o, lse): two Expectations, fp64 mathematics, bounds as ``attention.attention_bounds`` derives them.

    ``sample`` limits both to about that many rows (batch, query, head), chosen by ``seed``; ``index`` asks for exactly
    the rows of an o-Expectation's index instead.
    """
    q, k, v, causal, scale = data
    batch, sq, hq, _ = q.shape
    sk, hk, dim = v.shape[1:]
    group = hq // hk
    if index is None and sample is not None and sample < batch * sq * hq:
        index = tuple(part.to(q.device) for part in sample_rows(batch, sq, hq, sample, seed))

    if index is None:
        o = torch.empty(batch * hq, sq, dim, device=q.device)
        lse = torch.empty(batch * hq, sq, device=q.device)
        o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
        visible = visible_keys(torch.arange(sq, device=q.device), sq, sk, causal)
        for some, answer in dense_attention(q, k, v, visible, scale):
            o[some], lse[some] = answer[0], answer[2]
            o_bound[some], lse_bound[some] = attention_bounds(*answer, q.dtype)
        o, o_bound = (x.view(batch, hq, sq, dim).transpose(1, 2).contiguous() for x in (o, o_bound))
        lse, lse_bound = (x.view(batch, hq, sq) for x in (lse, lse_bound))
        lse_index = None
    else:
        b_of, i_of, h_of = (part.to(q.device) for part in index)
        visible = visible_keys(i_of, sq, sk, causal)
        o = torch.empty(len(b_of), dim, device=q.device)
        lse = torch.empty(len(b_of), device=q.device)
        o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
        for b, h in torch.unique(torch.stack([b_of, h_of // group]), dim=1).T.tolist():
            here = ((b_of == b) & (h_of // group == h)).nonzero().squeeze(1)
            longest = int(visible[here].max())   # spares converting keys that nobody sees
            rows = q[b_of[here], i_of[here], h_of[here]]
            answer = attention_rows(rows, k[b, :longest, h], v[b, :longest, h], visible[here], scale)
            o[here], lse[here] = answer[0].float(), answer[2].float()
            bounds = attention_bounds(*answer, q.dtype)
            o_bound[here], lse_bound[here] = bounds[0].float(), bounds[1].float()
        index, lse_index = (b_of, i_of, h_of), (b_of, h_of, i_of)
    return (
        Expectation("o", o, o_bound, q.dtype, (batch, sq, hq, dim), index),
        Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq), lse_index),
    )


def ref_kernel(data: input_t) -> output_t:
    """(o, lse) in the output dtypes."""
    o, lse = expected(data)
    return o.rounded(), lse.rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
