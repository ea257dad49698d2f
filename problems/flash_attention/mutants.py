# SPDX-License-Identifier: MIT
"""Wrong answers that the check of flash_attention must refuse in every case they apply to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attention import without_maximum
from utils import Mutant

TILE = 64

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]


def _hide_keys(data: Any, first: int) -> Any:
    """Keys from ``first`` on get no weight while the mask stays where it is: one more column, 1 in q, -inf in k."""
    q, k, v, causal, scale = data
    column = torch.zeros_like(k[..., :1])
    column[:, first:] = -torch.inf
    return torch.cat([q, torch.ones_like(q[..., :1])], -1), torch.cat([k, column], -1), v, causal, scale


def _uniform(case: Case, data: Any) -> Any:
    return torch.zeros_like(data[0]), *data[1:]


def _half_of_keys(case: Case, data: Any) -> Any:
    return _hide_keys(data, case["sk"] // 2)


def _last_block(case: Case, data: Any) -> Any:
    return _hide_keys(data, (case["sk"] - 1) // TILE * TILE)


def _half_of_columns(case: Case, data: Any) -> Any:
    q, k, *rest = data
    half = q.shape[3] // 2
    return (q[..., :half], k[..., :half], *rest)


def _no_mask(case: Case, data: Any) -> Any:
    q, k, v, _, scale = data
    return q, k, v, False, scale


def _top_left(case: Case, data: Any) -> Any:
    """The mask aligned at the other corner, query i sees keys j <= i: the same as bottom-right for as many keys as
    queries, the surplus ones cut, missing ones made up and hidden.
    """
    q, k, v, causal, scale = data
    sq, sk = q.shape[1], k.shape[1]
    if sk > sq:
        return q, k[:, :sq], v[:, :sq], causal, scale
    hidden = torch.zeros_like(k[:, :1]).expand(-1, sq - sk, -1, -1)
    return _hide_keys((q, torch.cat([k, hidden], 1), torch.cat([v, hidden], 1), causal, scale), sk)


def _wrong_heads(case: Case, data: Any) -> Any:
    q, k, v, *rest = data
    heads = torch.arange(q.shape[2], device=q.device) % k.shape[2]
    return (q, k[:, :, heads], v[:, :, heads], *rest)


def _no_scale(case: Case, data: Any) -> Any:
    return *data[:4], 1.0


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return tuple(torch.zeros_like(output) for output in outputs)


def _copied(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return data[0], torch.zeros_like(outputs[1])


def _last_queries(case: Case, data: Any, outputs: Outputs) -> Outputs:
    o, lse = (output.clone() for output in outputs)
    first = (case["sq"] - 1) // TILE * TILE
    o[:, first:] = 0
    lse[:, :, first:] = 0
    return o, lse


def _binary_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1] / math.log(2.0)


def _finite_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1].clamp_min(-1e30)


def _without_maximum(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return without_maximum(*outputs)


def _steep(case: Case) -> bool:
    return bool(case.get("steep"))


def _empty_rows(case: Case) -> bool:
    return bool(case["causal"]) and case["sq"] > case["sk"]


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("o and lse are zero", transform_outputs=_zeros),
    "input_copied": Mutant("o is q, lse zero", transform_outputs=_copied),
    "uniform_attention": Mutant("o is the mean of v", transform_data=_uniform),
    "half_of_keys_skipped": Mutant("only the first half of the keys", transform_data=_half_of_keys),
    "last_kv_block_skipped": Mutant("the last (up to) 64 keys not read", transform_data=_last_block),
    "half_of_columns_skipped": Mutant("scores from the first half of the columns", transform_data=_half_of_columns),
    "mask_ignored": Mutant("every query sees every key", transform_data=_no_mask,
                           applies=lambda case: bool(case["causal"]) and case["sq"] > 1),
    "mask_top_left": Mutant("the causal mask aligned at the first key", transform_data=_top_left,
                            applies=lambda case: bool(case["causal"]) and case["sq"] != case["sk"]),
    "heads_interleaved": Mutant("query head h reads key head h % hk", transform_data=_wrong_heads,
                                applies=lambda case: 1 < case["hk"] < case["hq"]),
    "scale_ignored": Mutant("softmax scale 1", transform_data=_no_scale),
    "last_queries_not_computed": Mutant("the last (up to) 64 queries left at zero", transform_outputs=_last_queries),
    "max_not_subtracted": Mutant("exponentials in fp32 of scores, no maximum subtracted",
                                 transform_outputs=_without_maximum, applies=_steep),
    "lse_base_2": Mutant("lse in base 2", transform_outputs=_binary_lse),
    "lse_finite": Mutant("rows without keys get a finite lse", transform_outputs=_finite_lse, applies=_empty_rows),
}
