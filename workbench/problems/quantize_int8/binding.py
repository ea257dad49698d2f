# SPDX-License-Identifier: MIT
"""Binds quantize_int8's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "quantize_int8"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all outputs depend on them


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    x, form = data
    return {"n": x.shape[0], "form": form}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"q": ((case["n"],), "int8"), "scale": ((1,), "float32"), "zero": ((1,), "int32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, form = data
    return {"x": x, "n": case["n"], "symmetric": int(form == "symmetric")}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """Room for the extremes that blocks find."""
    return 65536


def flops(case: Mapping[str, Any]) -> int:
    """Two comparisons, a product and a rounding per element."""
    return 4 * int(case["n"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x and q once: the second look at x may come from a cache."""
    return 3 * int(case["n"]) + 8
