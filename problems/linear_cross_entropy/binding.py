# SPDX-License-Identifier: MIT
"""Binds linear_cross_entropy's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "linear_cross_entropy"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all outputs depend on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "bf16"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed and which tokens are ignored, from shapes and numbers only. A leaderboard
    passes no case.
    """
    x, w, _, smoothing = data
    return {"tokens": x.shape[0], "hidden": x.shape[1], "vocab": w.shape[0], "smoothing": round(1000 * smoothing)}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    tokens, hidden, vocab = case["tokens"], case["hidden"], case["vocab"]
    return {"dx": ((tokens, hidden), "bfloat16"), "dw": ((vocab, hidden), "float32"), "loss": ((1,), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, w, target, smoothing = data
    return {"x": x, "w": w, "target": target, "tokens": case["tokens"], "hidden": case["hidden"],
            "vocab": case["vocab"], "smoothing": smoothing}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """16 bytes a token, and the largest of 1 MiB, a sixteenth of the logits in 16 bits, and half of them up to 64 MiB.
    From 2 MiB of logits on, these never fit as a whole.
    """
    logits = 2 * case["tokens"] * case["vocab"]
    return 16 * case["tokens"] + max(_MIB, logits // 16, min(64 * _MIB, logits // 2))


def flops(case: Mapping[str, Any]) -> int:
    """6 · tokens · hidden · vocab: logits, dx and dw, ignored tokens counted like others; no exponentials."""
    return 6 * case["tokens"] * case["hidden"] * case["vocab"]


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x, w and dx (2 bytes), dw, target and loss (4 bytes), each once."""
    tokens, hidden, vocab = case["tokens"], case["hidden"], case["vocab"]
    return 4 * tokens * hidden + 6 * vocab * hidden + 4 * tokens + 4
