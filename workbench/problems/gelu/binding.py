# SPDX-License-Identifier: MIT
"""Binds gelu's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "gelu"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all of y depends on them


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    x, form = data
    return {"n": x.shape[0], "form": form}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"y": ((case["n"],), "float16")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, form = data
    return {"x": x, "n": case["n"], "tanh_form": int(form == "tanh")}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 0


def flops(case: Mapping[str, Any]) -> int:
    """Counted as 8 per element: the polynomial inside erf or tanh is the kernel's choice."""
    return 8 * int(case["n"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x and y once."""
    return 4 * int(case["n"])
