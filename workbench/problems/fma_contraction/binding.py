# SPDX-License-Identifier: MIT
"""Binds fma_contraction's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "fma_contraction"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x", "y")            # every link of the judge's chain redraws these; all outputs depend on them


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    x, _y, _coefficients, contract = data
    return {"rows": x.shape[0], "n": x.shape[1], "contract": contract}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return dict.fromkeys(("dots", "values", "residuals"), ((case["rows"],), "float32"))


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, y, coefficients, contract = data
    return {"x": x, "y": y, "coefficients": coefficients, "rows": case["rows"], "n": case["n"],
            "fused": int(contract == "fused")}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 0


def flops(case: Mapping[str, Any]) -> int:
    """A product and a sum per term; 7 of the polynomial and one of the residual count as terms."""
    return 2 * case["rows"] * (case["n"] + 8)


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x, y, the coefficients and the three outputs, each once."""
    return 4 * (2 * case["rows"] * case["n"] + 3 * case["rows"] + 8)
