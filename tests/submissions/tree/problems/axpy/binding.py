# SPDX-License-Identifier: MIT
"""Binding of the tests' problem. What a packed file does not need must not reach it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy  # not there on a leaderboard; only flops, which is not packed, uses it

SYMBOL = "axpy"
DATA_OUTPUTS = {"y": 1}

# The workspace comes in pages of this many bytes.
_PAGE = 1 << 12


def PEAK(case: Mapping[str, Any]) -> str:
    return "fp32"


def case_of(data: Any) -> dict[str, int]:
    """n, from the length of x."""
    return {"n": data[0].shape[0]}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {"y": ((case["n"],), "float32"), "total": ((1,), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    x, _, a = data
    return {"x": x, "n": case["n"], "a": a}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    return _pages(4 * case["n"]) * _PAGE


def _pages(nbytes: int) -> int:
    return math.ceil(nbytes / _PAGE)


def flops(case: Mapping[str, Any]) -> int:
    return int(numpy.prod([2, case["n"]]))
