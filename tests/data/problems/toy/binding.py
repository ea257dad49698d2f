# SPDX-License-Identifier: MIT
"""How toy's data meets its ``kernel.h``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "toy"
DATA_OUTPUTS = {"y": 2}
FRESH = ("x",)


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate of the roofline."""
    return "fp32"


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters."""
    return {"y": ((case["n"],), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters."""
    x, alpha, _ = data
    return {"x": x, "alpha": alpha, "n": case["n"]}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """A few bytes, no multiple of anything, so that an overrun by one is one."""
    return 333


def flops(case: Mapping[str, Any]) -> int:
    """One multiplication per element."""
    return int(case["n"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x and y once."""
    return 8 * int(case["n"])
