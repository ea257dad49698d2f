# SPDX-License-Identifier: MIT
"""Wrong answers that the check of flash_attention_fp8 must refuse in every case they apply to: those of
flash_attention on the dequantised operands, and those that mistake a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import attention_mutants
from reference import spread_out
from utils import Mutant

Case = Mapping[str, Any]
Q, K, V = 3, 4, 5             # where data has the scales


def _on_numbers(mutant: Mutant) -> Mutant:
    """A mutant of flash_attention for the numbers that codes and scales stand for."""
    change = mutant.transform_data
    if change is None:
        return mutant

    def transform(case: Case, data: Any) -> Any:
        numbers = [x.float() * spread_out(scale, x.shape[1])
                   for x, scale in zip(data[:3], data[3:6], strict=True)]
        q, k, v, causal, scale = change(case, (*numbers, *data[6:8]))
        one = torch.ones(1, 1, 1, device=q.device)
        return q, k, v, one, one, one, causal, scale, "tensor"

    return Mutant(mutant.summary, transform_data=transform, applies=mutant.applies)


def _scales(at: int, function: Callable[[Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """Turn a change of one operand's scales into a change of the data."""
    return lambda case, data: (*data[:at], function(data[at]).expand(data[at].shape).contiguous(), *data[at + 1 :])


def _copied(case: Case, data: Any, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return data[0].to(outputs[0].dtype), torch.zeros_like(outputs[1])


def _exchanged(case: Case, data: Any) -> Any:
    return (*data[:4], data[V], data[K], *data[6:])


def _small_scales(case: Case) -> bool:
    """Outliers make scales of about 1: to leave these out, or to apply them twice, may be right by chance."""
    return not case["outliers"]


def _blocks(tokens: str) -> Callable[[Case], bool]:
    return lambda case: case["scales"] == "block" and case[tokens] > 128


def _heads(heads: str) -> Callable[[Case], bool]:
    return lambda case: case["scales"] != "tensor" and case[heads] > 1


MUTANTS: dict[str, Mutant] = {name: _on_numbers(mutant) for name, mutant in attention_mutants.MUTANTS.items()} | {
    "input_copied": Mutant("o holds the numbers of q, lse zero", transform_outputs=_copied),
    "scales_exchanged": Mutant("the scales of k and v exchanged", transform_data=_exchanged),
}
for _at, _name, _tokens, _count in ((Q, "q", "sq", "hq"), (K, "k", "sk", "hk"), (V, "v", "sk", "hk")):
    MUTANTS |= {
        f"{_name}_scale_ignored": Mutant(
            f"every scale of {_name} is 1", transform_data=_scales(_at, torch.ones_like),
            applies=_small_scales),
        f"{_name}_scale_squared": Mutant(
            f"the scales of {_name} applied twice", transform_data=_scales(_at, torch.square),
            applies=_small_scales),
        f"{_name}_scale_of_first_block": Mutant(
            f"all tokens use the scales of {_name} of the first 128", transform_data=_scales(_at, lambda s: s[:, :1]),
            applies=_blocks(_tokens)),
        f"{_name}_scale_of_next_block": Mutant(
            f"every block of {_name} uses the scales of the next", transform_data=_scales(_at, lambda s: s.roll(-1, 1)),
            applies=_blocks(_tokens)),
        f"{_name}_scale_of_next_head": Mutant(
            f"every head of {_name} uses the scales of the next", transform_data=_scales(_at, lambda s: s.roll(-1, -1)),
            applies=_heads(_count)),
    }
