# SPDX-License-Identifier: MIT
"""Likely mistakes in mla_decode_fp8, for the judge's diagnosis: mistakes of scales, then of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_diagnose
from latent import rows_of_request
from latent_diagnose import AXES, NAN, groups, index
from reference import dequantise, tokens_of, unpack

__all__ = ["AXES", "NAN", "hypotheses", "index"]


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[attention_diagnose.Hypothesis]:
    """(name, sentence, (o, lse) of the rows of ``index``) of each mistake; a block of keys is a page."""
    yield from _of_scales(data, index)
    found, longest = groups(data, index, tokens_of)
    yield from attention_diagnose.hypotheses(found, bool(data[4]), longest)


def _of_scales(data: Any, index: tuple[Tensor, ...]) -> Iterator[attention_diagnose.Hypothesis]:
    def answer(change: Callable[[Tensor], Tensor]) -> attention_diagnose.Answer:
        def changed(data: Any, request: int) -> Tensor:
            codes, scales, rotary = unpack(rows_of_request(data, request))
            return dequantise(codes, change(scales), rotary)
        return attention_diagnose.plain(groups(data, index, changed)[0])

    for name, sentence, change in (
        ("scales_ignored", "the scales of the cache are left out", torch.ones_like),
        ("scales_squared", "the scales of the cache are applied twice", torch.square),
        ("scales_inverted", "columns are divided by their scales", torch.reciprocal),
        ("scale_of_first_block", "all columns of a token use the scale of its first 128",
         lambda s: s[:, :1].expand_as(s)),
        ("scales_reversed", "the four scales of a token are read in the opposite order", lambda s: s.flip(-1)),
        ("scale_block_+1", "each 128 columns use the scale of the next", lambda s: s.roll(-1, -1)),
        ("scales_of_token_before", "each token uses the scales of the one before it", lambda s: s.roll(1, 0)),
        ("scales_powers_up", "scales rounded up to a power of two", lambda s: torch.exp2(torch.ceil(torch.log2(s)))),
        ("scales_powers_down", "scales rounded down to a power of two",
         lambda s: torch.exp2(torch.floor(torch.log2(s)))),
    ):
        yield name, sentence, answer(change)
