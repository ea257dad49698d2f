# SPDX-License-Identifier: MIT
"""How matmul's data meets its ``kernel.h``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "matmul"
DATA_OUTPUTS = {"c": 3}
FRESH = ("a",)            # what a commit chain draws anew between two calls


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate of the roofline."""
    return "fp32"


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters."""
    return {"c": ((case["m"], case["n"]), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters."""
    a, b, s, _ = data
    return {"a": a, "b": b, "s": s, "m": case["m"], "n": case["n"], "k": case["k"]}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 1024


def flops(case: Mapping[str, Any]) -> int:
    """2·m·n·k."""
    return 2 * int(case["m"]) * int(case["n"]) * int(case["k"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """Every tensor once."""
    m, n, k = (int(case[name]) for name in "mnk")
    return 4 * (m * k + n * k + m + m * n)
