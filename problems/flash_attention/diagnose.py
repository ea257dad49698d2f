# SPDX-License-Identifier: MIT
"""Likely mistakes in flash_attention, for the judge's diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from attention_queries import visible_keys

AXES = {"o": ("batch", "query", "head", "column"), "lse": ("batch", "head", "query")}


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(batch, query, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``."""
    return attention_diagnose.index(name, wrong, others, 1)


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[attention_diagnose.Hypothesis]:
    """(name, sentence, (o, lse) of the rows of ``index``) of each mistake."""
    q, k, v, causal, scale = data
    sq, sk, size = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    b_of, i_of, h_of = index
    visible = visible_keys(i_of, sq, sk, causal)
    groups = []
    for b, h in torch.unique(torch.stack([b_of, h_of // size]), dim=1).T.tolist():
        here = ((b_of == b) & (h_of // size == h)).nonzero().squeeze(1)
        rows = q[b_of[here], i_of[here], h_of[here]]
        groups.append(attention_diagnose.group(here, rows, k[b, :, h], v[b, :, h], visible[here], scale))
    return attention_diagnose.hypotheses(groups, bool(causal), sk)
