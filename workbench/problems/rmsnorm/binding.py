# SPDX-License-Identifier: MIT
"""Binds rmsnorm's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "rmsnorm"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all of y depends on them


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    x = data[0]
    return {"rows": x.shape[0], "width": x.shape[1], "type": "float" if x.element_size() == 4 else "bfloat"}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"y": ((case["rows"], case["width"]), "float32" if case["type"] == "float" else "bfloat16")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, weight, eps = data
    return {"x": x, "weight": weight, "rows": case["rows"], "width": case["width"],
            "bfloat": int(case["type"] == "bfloat"), "eps": eps}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 0


def flops(case: Mapping[str, Any]) -> int:
    """A square, a sum and two products per element."""
    return 4 * case["rows"] * case["width"]


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x, weight and y, each once."""
    return (4 if case["type"] == "float" else 2) * (2 * case["rows"] + 1) * case["width"]
