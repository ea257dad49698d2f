# SPDX-License-Identifier: MIT
"""Likely mistakes in decoding over a paged latent cache, for mla_decode and mla_decode_fp8.

Used by the judge only; never staged on a runner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from latent import LATENT

AXES = {"o": ("request", "query", "head", "column"), "lse": ("request", "head", "query")}
NAN = "slots beyond a length and pages without an owner hold NaN: it comes out where one of those is read"
ALL_HEADS = 1 << 15           # share the one key head


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(request, query, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``.
    """
    return attention_diagnose.index(name, wrong, others, ALL_HEADS)


def groups(
    data: Any, index: tuple[Tensor, ...], tokens_of: Callable[[Any, int], Tensor],
) -> tuple[list[attention_diagnose.Group], int]:
    """(rows of ``index`` by request, tokens of the longest of these); ``tokens_of(data, request)``: [s, 576]."""
    q, _, _, _, causal, scale = data
    b_of, i_of, h_of = index
    found, longest = [], 0
    for b in torch.unique(b_of).tolist():
        here = (b_of == b).nonzero().squeeze(1)
        tokens = tokens_of(data, b)
        hidden = q.shape[1] - 1 - i_of[here] if causal else torch.zeros_like(here)
        found.append(attention_diagnose.group(
            here, q[b, i_of[here], h_of[here]], tokens, tokens[:, :LATENT], (len(tokens) - hidden).clamp_min(0), scale))
        longest = max(longest, len(tokens))
    return found, longest
