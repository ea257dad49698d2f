# SPDX-License-Identifier: MIT
"""Likely mistakes in flash_attention_varlen, for the judge's diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from attention_queries import visible_keys
from attention_sequences import bounds

AXES = {"o": ("row", "head", "column"), "lse": ("head", "row")}
NAN = "keys behind a sequence's last one were read: those that no query sees hold NaN"


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(row, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``."""
    o_first = [part if name == "o" else part.flip(1) for part in (wrong[:, :2], others[:, :2])]
    one_batch = [torch.cat([torch.zeros_like(part[:, :1]), part], 1) for part in o_first]
    return attention_diagnose.index("o", *one_batch, 1)[1:]


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[attention_diagnose.Hypothesis]:
    """(name, sentence, (o, lse) of the rows of ``index``) of each mistake."""
    q, k, v, starts_q, starts_k, _, _, causal, scale = data
    size = q.shape[1] // k.shape[1]
    r_of, h_of = index
    groups, longest = [], 0
    for (first, last), (first_key, last_key) in zip(bounds(starts_q), bounds(starts_k), strict=True):
        mine = (r_of >= first) & (r_of < last)
        for h in torch.unique(h_of[mine] // size).tolist():
            here = (mine & (h_of // size == h)).nonzero().squeeze(1)
            visible = visible_keys(r_of[here] - first, last - first, last_key - first_key, causal)
            part = slice(first_key, last_key)
            groups.append(attention_diagnose.group(here, q[r_of[here], h_of[here]], k[part, h], v[part, h], visible,
                                                   scale))
            longest = max(longest, last_key - first_key)
    yield from attention_diagnose.hypotheses(groups, bool(causal), longest)
