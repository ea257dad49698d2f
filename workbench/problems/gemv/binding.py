# SPDX-License-Identifier: MIT
"""Binds gemv's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "gemv"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all of y depends on them


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    a = data[0]
    return {"m": a.shape[0], "n": a.shape[1]}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"y": ((case["m"],), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    a, x = data
    return {"a": a, "x": x, "m": case["m"], "n": case["n"]}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """Room for 64 partial sums of every row."""
    return 64 * 4 * int(case["m"])


def flops(case: Mapping[str, Any]) -> int:
    """A product and a sum per element of a."""
    return 2 * int(case["m"]) * int(case["n"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """a, x and y once."""
    return 4 * (case["m"] * case["n"] + case["m"] + case["n"])
