# SPDX-License-Identifier: MIT
"""Wrong answers that the check of mla_decode must refuse in every case they apply to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from utils import Mutant

PAGE, WIDTH, LATENT = 64, 576, 512

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]


def _queries(function: Callable[[Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Lift a change of q to one of the data."""
    return lambda case, data: (function(data[0]), *data[1:])


def _lengths(function: Callable[[Case, Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Lift a change of the lengths to one of the data."""
    return lambda case, data: (*data[:3], function(case, data[3]), *data[4:])


def _tokens_cut(function: Callable[[Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Tokens from ``function(lengths)`` on are not read by any query (so a causal mask has nothing left to hide)."""
    return lambda case, data: (*data[:3], function(data[3]), False, data[5])


def _without_rope(q: Tensor) -> Tensor:
    q = q.clone()
    q[..., LATENT:] = 0
    return q


def _identity_pages(case: Case, data: Any) -> Any:
    q, kv_cache, block_table, *rest = data
    pages = torch.arange(block_table.numel(), device=q.device) % kv_cache.shape[0]
    return (q, kv_cache, pages.view_as(block_table).to(torch.int32), *rest)


def _half_copied(case: Case, data: Any) -> Any:
    """The second half of the batch asks what the first half asked."""
    q, kv_cache, block_table, seqlens, *rest = data
    half = len(q) // 2

    def copied(x: Tensor) -> Tensor:
        return torch.cat([x[:half], x[:half], x[2 * half :]])

    return (copied(q), kv_cache, copied(block_table), copied(seqlens), *rest)


def _no_mask(case: Case, data: Any) -> Any:
    return *data[:4], False, data[5]


def _scale(value: float) -> Callable[[Case, Any], Any]:
    return lambda case, data: (*data[:5], value)


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return tuple(torch.zeros_like(output) for output in outputs)


def _copied(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return (data[0][..., :LATENT] * data[5]).to(outputs[0].dtype), torch.zeros_like(outputs[1])


def _last_heads(case: Case, data: Any, outputs: Outputs) -> Outputs:
    o, lse = (output.clone() for output in outputs)
    o[:, :, -8:] = 0
    lse[:, -8:] = 0
    return o, lse


def _last_columns(case: Case, data: Any, outputs: Outputs) -> Outputs:
    o = outputs[0].clone()
    o[..., -64:] = 0
    return o, outputs[1]


def _binary_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1] / math.log(2.0)


def _finite_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1].clamp_min(-1e30)


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("o and lse are zero", transform_outputs=_zeros),
    "input_copied": Mutant("o is the scaled latent part of q, lse zero: no cache read", transform_outputs=_copied),
    "uniform_attention": Mutant("o is the mean of the values", transform_data=_queries(torch.zeros_like)),
    "half_of_tokens_skipped": Mutant("the first half of every request", transform_data=_tokens_cut(lambda n: n // 2)),
    "last_page_skipped": Mutant(
        "all pages but a request's last", transform_data=_tokens_cut(lambda n: (n - 1).clamp_min(0) // PAGE * PAGE)),
    "stale_length": Mutant(
        "the newest token not read", transform_data=_lengths(lambda case, n: (n - 1).clamp_min(0))),
    "lengths_ignored": Mutant(
        "every request as long as the longest",
        transform_data=_lengths(lambda case, n: torch.full_like(n, case["sk"])),
        applies=lambda case: case["lens"] != "uniform" and case["batch"] > 1),
    "block_table_ignored": Mutant("pages in order", transform_data=_identity_pages),
    "rope_ignored": Mutant("scores from the 512 latent columns alone", transform_data=_queries(_without_rope)),
    "mask_ignored": Mutant("all queries see all tokens", transform_data=_no_mask,
                           applies=lambda case: bool(case["causal"]) and case["sq"] > 1),
    "scale_ignored": Mutant("softmax scale 1", transform_data=_scale(1.0)),
    "scale_of_width": Mutant("softmax scale 576^-0.5", transform_data=_scale(WIDTH**-0.5)),
    "first_head_for_all": Mutant("all heads ask what head 0 asks",
                                 transform_data=_queries(lambda q: q[:, :, :1].expand_as(q))),
    "second_half_copies_first": Mutant("the second half of the batch repeats the first", transform_data=_half_copied,
                                       applies=lambda case: case["batch"] > 1),
    "last_heads_not_computed": Mutant("the last 8 heads left at zero", transform_outputs=_last_heads),
    "last_columns_not_computed": Mutant("the last 64 value columns left at zero", transform_outputs=_last_columns),
    "lse_base_2": Mutant("lse in base 2", transform_outputs=_binary_lse),
    "lse_finite": Mutant(
        "queries without a token get a finite lse", transform_outputs=_finite_lse,
        applies=lambda case: case["lens"] == "mixed" and case["batch"] > 1),
}
