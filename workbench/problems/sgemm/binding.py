# SPDX-License-Identifier: MIT
"""Binds sgemm's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "sgemm"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("a",)                # every link of the judge's chain redraws these; all of out depends on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    a, b, _c, _alpha, beta = data
    return {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1], "scale": "both" if beta else "plain"}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"out": ((case["m"], case["n"]), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    a, b, c, alpha, beta = data
    return {"a": a, "b": b, "c": c, "m": case["m"], "n": case["n"], "k": case["k"], "alpha": alpha, "beta": beta}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """32 MiB, which is what cuBLAS asks for at most; our own kernels need none."""
    return 32 * _MIB


def flops(case: Mapping[str, Any]) -> int:
    """2·m·n·k."""
    return 2 * case["m"] * case["n"] * case["k"]


def bytes_moved(case: Mapping[str, Any]) -> int:
    """a, b, out and, where beta is not 0, c, each once."""
    m, n, k = case["m"], case["n"], case["k"]
    return 4 * (m * k + k * n + (2 if case["scale"] == "both" else 1) * m * n)
