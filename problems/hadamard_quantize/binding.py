# SPDX-License-Identifier: MIT
"""Binds hadamard_quantize's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "hadamard_quantize"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all of codes and scale depend on them

_MIB = 1 << 20
SCALES = ("tensor", "head", "block")        # as kernel.h numbers them
BLOCK = 128


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed and whether it has outliers."""
    x, _, rotated, scales, _ = data
    batch, tokens, heads, dim = x.shape
    return {"batch": batch, "tokens": tokens, "heads": heads, "dim": dim, "rotated": int(rotated), "scales": scales}


def scale_shape(case: Mapping[str, Any]) -> tuple[int, int, int]:
    """The shape of the scales of a case."""
    batch, tokens, heads = case["batch"], case["tokens"], case["heads"]
    return {"tensor": (1, 1, 1), "head": (batch, 1, heads), "block": (batch, -(-tokens // BLOCK), heads)}[
        case["scales"]]


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    shape = tuple(case[key] for key in ("batch", "tokens", "heads", "dim"))
    return {"codes": (shape, "uint8"), "scale": (scale_shape(case), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, signs, rotated, scales, largest = data
    return {"x": x, "signs": signs, "batch": case["batch"], "tokens": case["tokens"], "heads": case["heads"],
            "head_dim": case["dim"], "rotated": int(rotated), "scales": SCALES.index(scales), "largest": largest}


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """1 MiB and a number per batch, 128 tokens and head: the largest magnitude of each block."""
    return _MIB + 4 * case["batch"] * -(-case["tokens"] // BLOCK) * case["heads"]


def flops(case: Mapping[str, Any]) -> int:
    """Per element a comparison and a product, and rotated a sum for each of log2(dim) steps of a fast transform."""
    steps = (case["dim"].bit_length() - 1) * case["rotated"]
    return case["batch"] * case["tokens"] * case["heads"] * case["dim"] * (2 + steps)


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x (2 bytes), codes (1 byte), scales (4 bytes), and signs (4 bytes) if rotated, each once."""
    batch, blocks, heads = scale_shape(case)
    elements = case["batch"] * case["tokens"] * case["heads"] * case["dim"]
    return 3 * elements + 4 * batch * blocks * heads + 4 * case["dim"] * case["rotated"]
