# SPDX-License-Identifier: MIT
"""Likely mistakes in flash_attention_fp8, for the judge's diagnosis: mistakes of scales, then of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from attention_queries import visible_keys
from reference import dequantised

AXES = {"o": ("batch", "query", "head", "column"), "lse": ("batch", "head", "query")}


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(batch, query, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``."""
    return attention_diagnose.index(name, wrong, others, 1)


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[attention_diagnose.Hypothesis]:
    """(name, sentence, (o, lse) of the rows of ``index``) of each mistake."""
    yield from _of_scales(data, index)
    yield from attention_diagnose.hypotheses(_groups(data, index), bool(data[6]), data[1].shape[1])


def _groups(data: Any, index: tuple[Tensor, ...]) -> list[attention_diagnose.Group]:
    q, k, v, q_scale, k_scale, v_scale, causal, scale, _ = data
    sq, sk, size = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    b_of, i_of, h_of = index
    visible = visible_keys(i_of, sq, sk, causal)
    groups = []
    for b, h in torch.unique(torch.stack([b_of, h_of // size]), dim=1).T.tolist():
        here = ((b_of == b) & (h_of // size == h)).nonzero().squeeze(1)
        rows = dequantised(q, q_scale, b, i_of[here], h_of[here])
        keys, values = dequantised(k, k_scale, b, slice(None), h), dequantised(v, v_scale, b, slice(None), h)
        groups.append(attention_diagnose.group(here, rows, keys, values, visible[here], scale))
    return groups


def _of_scales(data: Any, index: tuple[Tensor, ...]) -> Iterator[attention_diagnose.Hypothesis]:
    changes: list[tuple[str, str, Callable[[Tensor], Tensor]]] = [
        ("ignored", "are left out", torch.ones_like),
        ("squared", "are applied twice", torch.square),
        ("inverted", "divide instead of multiplying", torch.reciprocal),
    ]
    if max(scale.shape[1] for scale in data[3:6]) > 1:
        changes += [("of_first_block", "of the first 128 tokens serve all", lambda s: s[:, :1].expand_as(s)),
                    ("block_+1", "of each block are those of the next", lambda s: s.roll(-1, 1)),
                    ("block_-1", "of each block are those of the one before", lambda s: s.roll(1, 1))]
    if max(scale.shape[2] for scale in data[3:6]) > 1:
        changes += [("of_first_head", "of the first head serve all", lambda s: s[..., :1].expand_as(s))]
    for at, operand in ((3, "q"), (4, "k"), (5, "v")):
        for name, sentence, change in changes:
            wrong = (*data[:at], change(data[at]), *data[at + 1 :])
            yield (f"{operand}_scale_{name}", f"the scales of {operand} {sentence}",
                   attention_diagnose.plain(_groups(wrong, index)))
    if data[4].shape == data[5].shape:
        exchanged = (*data[:4], data[5], data[4], *data[6:])
        yield ("scales_exchanged", "the scales of k and v are exchanged",
               attention_diagnose.plain(_groups(exchanged, index)))
