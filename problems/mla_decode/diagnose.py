# SPDX-License-Identifier: MIT
"""What may have gone wrong in mla_decode, for the judge's diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from reference import LATENT, PAGE, WIDTH

AXES = {"o": ("request", "query", "head", "column"), "lse": ("request", "head", "query")}
NAN = "slots beyond a length and pages without an owner hold NaN: it comes out where one of those is read"
ALL_HEADS = 1 << 15           # share the one key head


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(request, query, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``.
    """
    return attention_diagnose.index(name, wrong, others, ALL_HEADS)


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[attention_diagnose.Hypothesis]:
    """(name, sentence, (o, lse) of the rows of ``index``) of each mistake; a block of keys is a page."""
    q, kv_cache, block_table, seqlens, causal, scale = data
    b_of, i_of, h_of = index
    groups, lengths = [], seqlens.tolist()
    chosen = torch.unique(b_of).tolist()
    for b in chosen:
        here = (b_of == b).nonzero().squeeze(1)
        pages = block_table[b, : (lengths[b] + PAGE - 1) // PAGE].long()
        tokens = kv_cache[pages].reshape(-1, WIDTH)[: lengths[b]]
        hidden = q.shape[1] - 1 - i_of[here] if causal else torch.zeros_like(here)
        rows = q[b, i_of[here], h_of[here]]
        groups.append(attention_diagnose.group(
            here, rows, tokens, tokens[:, :LATENT], (lengths[b] - hidden).clamp_min(0), scale))
    return attention_diagnose.hypotheses(groups, bool(causal), max(lengths[b] for b in chosen))
