# SPDX-License-Identifier: MIT
"""Binds bias_mask_scale_add's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "bias_mask_scale_add"
DATA_OUTPUTS: dict[str, int] = {}
# Every link of the judge's chain redraws these: all of y depends on them. Not x: its NaN must stay where mask hides it.
FRESH = ("residual",)


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    x = data[0]
    return {"rows": x.shape[0], "width": x.shape[1]}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"y": ((case["rows"], case["width"]), "float16")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, residual, bias, mask, scale = data
    return {"x": x, "residual": residual, "bias": bias, "mask": mask, "rows": case["rows"], "width": case["width"],
            "scale": scale}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 0


def flops(case: Mapping[str, Any]) -> int:
    """Two sums and a product per element."""
    return 3 * case["rows"] * case["width"]


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x, residual and y (2 bytes), mask (1 byte) and bias, each once."""
    return case["width"] * (7 * case["rows"] + 2)
