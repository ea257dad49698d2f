# SPDX-License-Identifier: MIT
"""Binds fp8_gemm's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "fp8_gemm"
DATA_OUTPUTS = {"c": 4}       # outputs that data carries, and where
FRESH = ("a",)                # every link of the judge's chain redraws these; all of c depends on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp8"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes only. A leaderboard passes no case."""
    a, b = data[0], data[1]
    return {"m": a.shape[0], "n": b.shape[0], "k": a.shape[1]}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"c": ((case["m"], case["n"]), "bfloat16")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    a, b, a_scale, b_scale, _ = data
    return {"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale, "m": case["m"], "n": case["n"], "k": case["k"]}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """min(64 MiB, max(1 MiB, 16 · m · n · 4)): fp32 partial sums of up to 16 splits of K, or as many as fit."""
    return min(64 * _MIB, max(_MIB, 16 * case["m"] * case["n"] * 4))


def flops(case: Mapping[str, Any]) -> int:
    """2·m·n·k; applying the scales is not counted."""
    return 2 * case["m"] * case["n"] * case["k"]


def bytes_moved(case: Mapping[str, Any]) -> int:
    """a and b (1 byte), c (2 bytes) and the scales (4 bytes), each once."""
    m, n, k = case["m"], case["n"], case["k"]
    return m * k + n * k + 2 * m * n + 4 * (k // 128) * (m + -(-n // 128))
