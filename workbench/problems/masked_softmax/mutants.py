# SPDX-License-Identifier: MIT
"""Wrong answers that the check of masked_softmax must refuse in every case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rows import last_columns, zeros
from utils import Mutant

Outputs = tuple[Tensor, ...]


def _lengths(change: Any) -> Any:
    def transform(case: Mapping[str, Any], data: Any) -> Any:
        scores, bias, lengths, v, causal = data
        return torch.nan_to_num(scores, nan=0.0, posinf=0.0), bias, change(lengths, scores.shape[3]), v, causal
    return transform


def _interleaved(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
    group = case["group"]
    return outputs[0], data[3].repeat(1, group, 1, 1)


def _uniform_where_none(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
    p = outputs[0].clone()
    p[(data[2] == 0)] = 1 / case["sk"]
    return p, outputs[1]


MUTANTS = {
    "zeros": zeros(),
    "lengths_ignored": Mutant(
        "every request is sk long", transform_data=_lengths(lambda lengths, sk: torch.full_like(lengths, sk)),
        applies=lambda case: case["batch"] > 1 and case["sk"] > 1),
    "one_key_less": Mutant(
        "the last key not seen", transform_data=_lengths(lambda lengths, sk: (lengths - 1).clamp(min=0)),
        applies=lambda case: not case["causal"]),
    "causal_flipped": Mutant(
        "causal where it is not, and not where it is",
        transform_data=lambda case, data: (torch.nan_to_num(data[0], nan=0.0, posinf=0.0), *data[1:4], not data[4]),
        applies=lambda case: case["sq"] > 1),
    "bias_ignored": Mutant(
        "no bias", transform_data=lambda case, data: (data[0], torch.zeros_like(data[1]), *data[2:]),
        applies=lambda case: case["bias"] != "none" and case["sk"] > 4),
    "uniform_where_none_is_seen": Mutant(
        "1 / sk in rows that see nothing", transform_outputs=_uniform_where_none,
        applies=lambda case: case["batch"] > 1),
    "heads_in_turns": Mutant(
        "repeated[h] = v[h % heads_k]", transform_outputs=_interleaved,
        applies=lambda case: 1 < case["group"] < case["hq"]),
    "tail_of_repeated": Mutant(
        "the last 8 columns of repeated are 0",
        transform_outputs=lambda case, data, outputs: (
            outputs[0], torch.cat([outputs[1][..., :-8], torch.zeros_like(outputs[1][..., -8:])], 3))),
    "tail_of_p": last_columns(1, lambda case: case["batch"] == 1),
}
