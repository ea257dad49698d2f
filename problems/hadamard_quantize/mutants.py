# SPDX-License-Identifier: MIT
"""Wrong answers that the check of hadamard_quantize must refuse in every case they apply to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from block_scales import BLOCK, spread_out
from reference import FLAVOURS, coded, turned
from utils import Mutant

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]
Transform = Callable[[Case, Any, Outputs], Outputs]


def _made(change: Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Transform:
    """(codes, scale) from ``change(data, y, scale)``: (v, scale)."""
    def transform(case: Case, data: Any, outputs: Outputs) -> Outputs:
        x, signs, rotated, _, largest = data
        v, scale = change(data, turned(x, signs, rotated), outputs[1].double())
        return coded(v, largest), scale.float()

    return transform


def _each(scale: Tensor, y: Tensor) -> Tensor:
    return spread_out(scale, y.shape[1])


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return torch.zeros_like(outputs[0]), outputs[1]


def _scale_zero(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], torch.zeros_like(outputs[1])


def _scale_of_x(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """The scale from x before it is rotated, for codes and in the output."""
    x, signs, rotated, scales, largest = data
    size = x.double().abs().amax(-1)
    scale = size.amax().view(1, 1, 1) if scales == "tensor" else size.amax(1, keepdim=True)
    if scales == "block":
        padded = torch.nn.functional.pad(size, (0, 0, 0, -size.shape[1] % BLOCK))
        scale = padded.unflatten(1, (-1, BLOCK)).amax(2)
    scale = scale.clamp_min(1e-4) / largest
    y = turned(x, signs, rotated)
    return coded(y / _each(scale, y), largest), scale.float()


def _turned_otherwise(change: Callable[[Any], Tensor]) -> Transform:
    """Codes of another rotation, with the right scales."""
    return _made(lambda data, y, scale: (change(data) / _each(scale, y), scale))


def _truncated(data: Any, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    v = y / _each(scale, y)
    near = v.clamp(-data[4], data[4]).float().to(FLAVOURS[data[4]]).double()
    return torch.where(near.abs() > v.abs(), near * (1 - 2.0**-4), near), scale     # a code less, where rounded up


def _last_columns(case: Case, data: Any, outputs: Outputs) -> Outputs:
    codes = outputs[0].clone()
    codes[..., -8:] = 0
    return codes, outputs[1]


def _last_tokens(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """The last (up to) 128 tokens left at zero, those of the last head excepted, which are zero by right."""
    codes = outputs[0].clone()
    codes[:, (codes.shape[1] - 1) // BLOCK * BLOCK :] = 0
    return codes, outputs[1]


def _first_block_for_all(data: Any, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    scale = scale[:, :1].expand_as(scale).contiguous()
    return y / _each(scale, y), scale


def _first_head_for_all(data: Any, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    scale = scale[..., :1].expand_as(scale).contiguous()
    return y / _each(scale, y), scale


def _rotated(case: Case) -> bool:
    return bool(case["rotated"])


def _many(case: Case) -> bool:
    """Rotated, and enough elements that some are near the middle of two codes: bf16 leaves most codes as they are."""
    return _rotated(case) and case["tokens"] > 16


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("all codes are zero", transform_outputs=_zeros),
    "scale_zero": Mutant("all scales are zero", transform_outputs=_scale_zero),
    "scale_a_thousandth_large": Mutant("scales a thousandth too large, codes right", transform_outputs=(
        lambda case, data, outputs: (outputs[0], outputs[1] * 1.001))),
    "codes_of_a_scale_a_hundredth_large": Mutant(
        "codes from a scale a hundredth too large", transform_outputs=_made(
            lambda data, y, scale: (y / _each(1.01 * scale, y), scale))),
    "truncated": Mutant("codes rounded towards zero", transform_outputs=_made(_truncated)),
    "through_bf16": Mutant("y rounded to bf16 before it is coded", applies=_many, transform_outputs=_turned_otherwise(
        lambda data: turned(data[0], data[1], True).to(torch.bfloat16).double())),
    "not_rotated": Mutant("the rotation left out", applies=_rotated, transform_outputs=_turned_otherwise(
        lambda data: data[0].double())),
    "signs_ignored": Mutant("the signs left out", applies=_rotated, transform_outputs=_turned_otherwise(
        lambda data: turned(data[0], torch.ones_like(data[1]), True))),
    "signs_afterwards": Mutant("the signs applied after the Hadamard matrix, not before it", applies=_rotated,
                               transform_outputs=_turned_otherwise(
        lambda data: turned(data[0], torch.ones_like(data[1]), True) * data[1].double())),
    "not_normalised": Mutant("the Hadamard matrix without its factor of dim^-1/2, scales of the right one",
                             applies=_rotated, transform_outputs=_turned_otherwise(
        lambda data: turned(data[0], data[1], True) * data[0].shape[-1] ** 0.5)),
    "rotated_all_the_same": Mutant("rotated where it was not asked for", applies=lambda case: not case["rotated"],
                                   transform_outputs=_turned_otherwise(lambda data: turned(data[0], data[1], True))),
    "scale_of_x": Mutant("scales from x before it is rotated", transform_outputs=_scale_of_x, applies=_rotated),
    "last_columns": Mutant("the last 8 columns left out", transform_outputs=_last_columns),
    "last_tokens": Mutant("the last (up to) 128 tokens left out", transform_outputs=_last_tokens,
                          applies=lambda case: case["heads"] * case["batch"] > 1 or case["tokens"] <= BLOCK),
    "first_block_for_all": Mutant("all blocks take the scale of the first one",
                                  transform_outputs=_made(_first_block_for_all),
                                  applies=lambda case: case["scales"] == "block" and case["tokens"] > BLOCK),
    "first_head_for_all": Mutant("all heads take the scale of the first one",
                                 transform_outputs=_made(_first_head_for_all),
                                 applies=lambda case: case["scales"] != "tensor" and case["heads"] > 1),
}
