# SPDX-License-Identifier: MIT
"""mla_decode: DeepSeek's absorbed multi-head latent attention over a paged bf16 cache, one KV head, 1 or 2 queries.

Scores use all 576 columns of a token (512 latent, 64 rotary), values are the first 512.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from attention import attention_bounds, attention_rows
from latent import LATENT, SOFTMAX_SCALE, expected_rows, paged_batch, rows_of_request
from utils import Expectation, check_outputs, default_device


def generate_input(
    *, batch: int, sq: int, hq: int, sk: int, lens: str, causal: int, seed: int, steep: int = 0,
    device: Any = None,
) -> input_t:
    """(q, kv_cache, block_table, seqlens, causal, softmax_scale) as ``task.input_t`` says; deterministic in ``seed``.

    What the values are: ``latent.paged_batch``.
    """
    place = default_device(device)
    paged = paged_batch(batch=batch, sq=sq, hq=hq, sk=sk, lens=lens, seed=seed, place=place, steep=steep)
    return *paged, bool(causal), SOFTMAX_SCALE


def tokens_of(data: input_t, request: int) -> Tensor:
    """The tokens of a request, bf16 [length, 576]."""
    return rows_of_request(data, request)


def _rows(rows: Tensor, tokens: Tensor, visible: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    o, spread, lse = attention_rows(rows, tokens, tokens[..., :LATENT], visible, scale)
    return o, lse, *attention_bounds(o, spread, lse, torch.bfloat16)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (o, lse): two Expectations, fp64 mathematics, bounds as ``attention.attention_bounds`` derives them.

    ``sample`` limits both to about that many rows (request, query, head), chosen by ``seed``; ``index`` asks for
    exactly the rows of an o-Expectation's index instead. Touches no slot beyond a request's length.
    """
    return expected_rows(data, sample, seed, index, lambda rows: rows, _rows)


def ref_kernel(data: input_t) -> output_t:
    """(o, lse) in the output dtypes."""
    o, lse = expected(data)
    return o.rounded(), lse.rounded().contiguous()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
