# SPDX-License-Identifier: MIT
"""Binds amd_moe's data to ``kernel.h`` and counts the least work of one call.

``case_of`` and ``arguments`` also take the challenge's own data, so that a packed file runs there: weights in a dict
with a tensor per matrix (``router.weight``, ``experts.0.0.weight``, …, ``shared_experts.2.weight``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

SYMBOL = "amd_moe"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all of y depends on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp16"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed."""
    x, weights, config = data
    ours = "router" in weights
    gate = weights["gate"] if ours else weights["experts.0.0.weight"]
    return {
        "dhidden": x.shape[2], "dexpert": gate.shape[-1],
        "nroutedexperts": weights["router" if ours else "router.weight"].shape[0], "nsharedexperts": 1,
        "nexpertspertoken": config["n_experts_per_token"], "bs": x.shape[0], "seqlen": x.shape[1],
    }


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    return {"y": ((case["bs"], case["seqlen"], case["dhidden"]), "float16")}


def _matrices(weights: Any, experts: int) -> dict[str, Any]:
    """gate, up, down and offsets of weights that are a tensor per matrix: the first expert's, and how far the others'
    lie from them. Raises ``ValueError`` for a matrix that is not contiguous.
    """
    names = [f"experts.{expert}" for expert in range(experts)] + ["shared_experts"]
    rows = [[weights[f"{name}.{part}.weight"] for name in names] for part in range(3)]
    if not all(matrix.is_contiguous() for row in rows for matrix in row):
        raise ValueError("an expert's matrix is not contiguous")
    offsets = torch.tensor([[(matrix.data_ptr() - row[0].data_ptr()) // 2 for matrix in row] for row in rows])
    gate, up, down = (row[0] for row in rows)
    return {"gate": gate, "up": up, "down": down, "offsets": offsets.to(gate.device)}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    x, weights, _ = data
    experts = case["nroutedexperts"]
    matrices = weights if "router" in weights else {"router": weights["router.weight"], **_matrices(weights, experts)}
    return {
        "x": x, **{name: matrices[name] for name in ("router", "gate", "up", "down", "offsets")},
        "tokens": case["bs"] * case["seqlen"], "hidden": case["dhidden"], "inner": case["dexpert"], "experts": experts,
        "chosen": case["nexpertspertoken"],
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """fp16 rows of the experts' inner values and of their outputs, one of each for every token and expert that it
    takes; 16 bytes of such a pair and 4 of any token and expert for the router's; 1 MiB beyond.
    """
    tokens, experts = case["bs"] * case["seqlen"], case["nroutedexperts"] + 1
    pairs = tokens * (case["nexpertspertoken"] + 1)
    return pairs * (2 * (case["dexpert"] + case["dhidden"]) + 16) + 4 * tokens * experts + _MIB


def _needed(case: Mapping[str, Any]) -> int:
    """Routed experts that some token takes: all, if there are many pairs to an expert; else the fewest possible."""
    experts, chosen = case["nroutedexperts"], case["nexpertspertoken"]
    return experts if case["bs"] * case["seqlen"] * chosen >= 32 * experts else chosen


def flops(case: Mapping[str, Any]) -> int:
    """The router's products, and three of every token with each expert that it takes and the shared one."""
    tokens, hidden = case["bs"] * case["seqlen"], case["dhidden"]
    return 2 * tokens * hidden * (case["nroutedexperts"] + 3 * (case["nexpertspertoken"] + 1) * case["dexpert"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """x, y and the router, and the matrices of every expert that some token takes, each once."""
    tokens, hidden = case["bs"] * case["seqlen"], case["dhidden"]
    return 2 * hidden * (2 * tokens + case["nroutedexperts"] + 3 * (_needed(case) + 1) * case["dexpert"])
