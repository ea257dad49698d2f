# SPDX-License-Identifier: MIT
"""Wrong answers that the check of amd_mla_decode must refuse in every case they apply to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from reference import HEADS, LATENT, NOPE, ROPE, VALUE, rotate, rotations
from utils import Mutant

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]


def _config(function: Callable[[Case], Mapping[str, Any]]) -> Callable[[Case, Any], Any]:
    """Set keys of the config, some of which only the reference reads."""
    return lambda case, data: ({**data[0], **function(case)}, *data[1:])


def _weight(name: str, function: Callable[[Tensor], None]) -> Callable[[Case, Any], Any]:
    """Change a copy of one weight."""
    def changed(case: Case, data: Any) -> Any:
        weight = data[0][name].clone()
        function(weight)
        return ({**data[0], name: weight}, *data[1:])
    return changed


def _no_rope(q_up: Tensor) -> None:
    q_up.view(HEADS, NOPE + ROPE, -1)[:, NOPE:] = 0


def _no_latent(q_up: Tensor) -> None:
    q_up.view(HEADS, NOPE + ROPE, -1)[:, :NOPE] = 0


def _first_head(q_up: Tensor) -> None:
    heads = q_up.view(HEADS, NOPE + ROPE, -1)
    heads[1:] = heads[:1].clone()


def _maps_swapped(kv_up: Tensor) -> None:
    maps = kv_up.view(HEADS, NOPE + VALUE, LATENT)
    maps.copy_(maps.roll(NOPE, 1))


def _last_heads(wo: Tensor) -> None:
    wo[:, -8 * VALUE :] = 0


def _half_copied(case: Case, data: Any) -> Any:
    """Every request of the second half of the batch asks what one of the first half asked, of that one's cache."""
    config, x, kv_cache = data
    half = len(x) // 2
    source = torch.arange(len(x), device=x.device) % half
    return config, x[source], kv_cache[source]


def _needs_cache(case: Case) -> bool:
    return case["prefill"] > 1


def _several(case: Case) -> bool:
    return case["batchsize"] > 1


def _steep(case: Case) -> bool:
    return bool(case.get("steep"))


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return tuple(torch.zeros_like(output) for output in outputs)


def _copied(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return data[1], outputs[1]


def _last_columns(case: Case, data: Any, outputs: Outputs) -> Outputs:
    y = outputs[0].clone()
    y[..., -32:] = 0
    return y, outputs[1]


def _row_rotated(case: Case, data: Any, outputs: Outputs) -> Outputs:
    cos, sin = rotations(torch.tensor([case["prefill"]], device=outputs[1].device), torch.float32)
    row = outputs[1].clone()
    row[..., LATENT:] = rotate(row[..., LATENT:].float(), cos, sin).to(row.dtype)
    return outputs[0], row


def _row_missing(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], torch.zeros_like(outputs[1])


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("y and kv_row are zero", transform_outputs=_zeros),
    "input_copied": Mutant("y is x", transform_outputs=_copied),
    "uniform_attention": Mutant("the mean of the values", transform_data=_weight("Q_proj_up_weight", Tensor.zero_)),
    "rope_ignored": Mutant("scores from the latent columns alone",
                           transform_data=_weight("Q_proj_up_weight", _no_rope), applies=_needs_cache),
    "latent_ignored": Mutant("scores from the rotary columns alone",
                             transform_data=_weight("Q_proj_up_weight", _no_latent)),
    "angles_exact": Mutant("positions and angles not rounded to bf16",
                           transform_data=_config(lambda case: {"exact_angles": True}),
                           applies=lambda case: case["prefill"] > 500),
    "query_not_rotated": Mutant("the query at position 0", transform_data=_config(lambda case: {"query_position": 0})),
    "query_one_behind": Mutant("the query at the position before its own",
                               transform_data=_config(lambda case: {"query_position": case["prefill"] - 1}),
                               applies=lambda case: case["prefill"] <= 256),       # beyond, both may share an angle
    "newest_token_not_seen": Mutant("the row that is appended takes no part",
                                    transform_data=_config(lambda case: {"seen": case["prefill"]})),
    "half_of_tokens_skipped": Mutant("the first half of the tokens",
                                     transform_data=_config(lambda case: {"seen": (case["prefill"] + 1) // 2})),
    "max_not_subtracted": Mutant("exponentials in fp32 of scores, no maximum subtracted",
                                 transform_data=_config(lambda case: {"maximum": False}), applies=_steep),
    "first_head_for_all": Mutant("all heads ask what head 0 asks",
                                 transform_data=_weight("Q_proj_up_weight", _first_head)),
    "maps_swapped": Mutant("a head's key and value maps in the other order",
                           transform_data=_weight("KV_proj_up_weight", _maps_swapped)),
    "last_heads_not_computed": Mutant("the last 8 heads left at zero",
                                      transform_data=_weight("wo_weight", _last_heads)),
    "second_half_copies_first": Mutant("the second half of the batch repeats the first", transform_data=_half_copied,
                                       applies=_several),
    "last_columns_not_computed": Mutant("the last 32 columns of y left at zero", transform_outputs=_last_columns),
    "row_rotated": Mutant("the appended row already rotated", transform_outputs=_row_rotated),
    "row_missing": Mutant("kv_row left at zero", transform_outputs=_row_missing),
}
