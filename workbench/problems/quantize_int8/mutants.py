# SPDX-License-Identifier: MIT
"""Wrong answers that the check of quantize_int8 must refuse in every case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rows import last_columns
from utils import Mutant

Outputs = tuple[Tensor, ...]


def _real(case: Mapping[str, Any]) -> bool:
    return bool(case["n"] >= 1000 and case["input"] != "zero")


def _quotients(data: Any, outputs: Outputs) -> Tensor:
    return data[0].double() / outputs[1].double()


def _truncated(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
    q = (torch.trunc(_quotients(data, outputs)) + outputs[2]).clamp(-128, 127)
    return (q.to(torch.int8), *outputs[1:])


def _wrapped(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
    q = torch.round(_quotients(data, outputs) * 1.02) + outputs[2]
    return ((q.to(torch.int64) & 0xFF).to(torch.uint8).view(torch.int8), *outputs[1:])


def _range_kept(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
    low, high = (float(value) for value in torch.aminmax(data[0]))
    scale = (high - low) / 255
    zero = round(-low / scale) - 128
    q = (torch.round(data[0].double() / scale) + zero).clamp(-128, 127)
    return q.to(torch.int8), torch.full_like(outputs[1], scale), torch.full_like(outputs[2], zero)


def _half_seen(case: Mapping[str, Any], data: Any) -> Any:
    """The second half scaled down: codes of the first half alone decide."""
    x, form = data
    return torch.where(x.abs() >= 0.999 * x.abs().max(), x * 0.9, x), form


MUTANTS = {
    "tail_not_computed": last_columns(8, _real),
    "truncated": Mutant("x / scale cut instead of rounded", transform_outputs=_truncated, applies=_real),
    "wrapped": Mutant(
        "codes that wrap around instead of ending at the limits", transform_outputs=_wrapped, applies=_real),
    "extremes_missed": Mutant("the largest elements not seen", transform_data=_half_seen, applies=_real),
    "zero_point_ignored": Mutant(
        "zero is 0", transform_outputs=lambda case, data, outputs: (*outputs[:2], torch.zeros_like(outputs[2])),
        applies=lambda case: case["form"] == "asymmetric" and case["n"] > 1),
    "range_not_widened": Mutant(
        "a range that need not hold 0", transform_outputs=_range_kept,
        applies=lambda case: case["form"] == "asymmetric" and case["input"] == "positive"),
    "other_form": Mutant(
        "the other form",
        transform_data=lambda case, data: (data[0], "asymmetric" if data[1] == "symmetric" else "symmetric")),
}
