# SPDX-License-Identifier: MIT
"""Binds masked_softmax's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rows import lengths_of

SYMBOL = "masked_softmax"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("scores", "v")       # every link of the judge's chain redraws these; all outputs depend on them

_BIAS = {1: "none", 3: "head", 4: "full"}        # by the number of dimensions


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp32"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes and numbers only. A leaderboard passes no case."""
    scores, bias, _lengths, v, causal = data
    batch, hq, sq, sk = scores.shape
    return {"batch": batch, "hq": hq, "group": hq // v.shape[1], "sq": sq, "sk": sk, "dim": v.shape[3],
            "bias": _BIAS[bias.ndim], "causal": int(causal)}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    batch, hq, sq, sk = (case[key] for key in ("batch", "hq", "sq", "sk"))
    return {"p": ((batch, hq, sq, sk), "float16"), "repeated": ((batch, hq, sk, case["dim"]), "float16")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    scores, bias, lengths, v, causal = data
    return {
        "scores": scores, "bias": bias, "lengths": lengths, "v": v, "batch": case["batch"], "heads_q": case["hq"],
        "heads_k": case["hq"] // case["group"], "seqlen_q": case["sq"], "seqlen_k": case["sk"], "dim": case["dim"],
        "bias_kind": list(_BIAS.values()).index(case["bias"]), "causal": int(causal),
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """None is needed."""
    return 0


def flops(case: Mapping[str, Any]) -> int:
    """Five operations per score: comparison, difference, exponential, sum, product."""
    return 5 * case["batch"] * case["hq"] * case["sq"] * case["sk"]


def _seen(case: Mapping[str, Any]) -> int:
    """Scores of visible keys, which must be read. Lengths are a function of the case (a seed permutes them)."""
    total = 0
    for length in lengths_of(case["batch"], case["sk"]):
        for i in range(case["sq"]) if case["causal"] else [0]:
            limit = min(length, max(0, i + 1 + case["sk"] - case["sq"])) if case["causal"] else length * case["sq"]
            total += limit
    return total * int(case["hq"])


def bytes_moved(case: Mapping[str, Any]) -> int:
    """p and repeated written, v read; of scores and bias the visible ones."""
    scores = case["batch"] * case["hq"] * case["sq"] * case["sk"]
    bias = {"none": 0, "head": scores // case["batch"], "full": scores}[case["bias"]]
    repeated = case["batch"] * case["hq"] * case["sk"] * case["dim"]
    seen = _seen(case)
    shared = case["batch"] if case["bias"] == "head" else 1
    read = seen + min(bias, seen // shared) + repeated // case["group"]
    return 2 * (read + scores + repeated) + 4 * case["batch"]
