# SPDX-License-Identifier: MIT
"""Binds wgmma_tile's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "wgmma_tile"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("a", "b")            # every link of the judge's chain redraws these; all of c depends on them

TYPES = ("half", "bfloat", "tfloat", "eight")
_WORDS = {"float16": "half", "bfloat16": "bfloat", "float32": "tfloat", "float8_e4m3fn": "eight",
          "float8_e4m3fnuz": "eight"}


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return {"bfloat": "bf16", "eight": "fp8"}.get(case["type"], "fp16")


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    a, b, pattern = data
    kind = _WORDS[str(a.dtype).removeprefix("torch.")]
    return {"n": b.shape[1], "k": a.shape[2], "type": kind, "repeat": a.shape[0], "pattern": pattern}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"c": ((case["repeat"], 64, case["n"]), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    a, b, _pattern = data
    return {"a": a, "b": b, "n": case["n"], "k": case["k"], "type": TYPES.index(case["type"]), "repeat": case["repeat"]}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 0


def flops(case: Mapping[str, Any]) -> int:
    """2·64·n·k a tile."""
    return 2 * 64 * case["n"] * case["k"] * case["repeat"]


def bytes_moved(case: Mapping[str, Any]) -> int:
    """a, b and c once."""
    size = {"tfloat": 4, "eight": 1}.get(case["type"], 2)
    return case["repeat"] * (size * (64 + case["n"]) * case["k"] + 4 * 64 * case["n"])
