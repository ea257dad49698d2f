# SPDX-License-Identifier: MIT
"""Binds flash_attention's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attention_queries import visible_pairs

SYMBOL = "flash_attention"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("q",)                # every link of the judge's chain redraws these; all outputs depend on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp16" if case["half"] else "bf16"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes only. A leaderboard passes no case."""
    q, k, _, causal, _ = data
    batch, sq, hq, dim = q.shape
    half = int(str(q.dtype) == "torch.float16")
    return {"batch": batch, "sq": sq, "sk": k.shape[1], "hq": hq, "hk": k.shape[2], "dim": dim, "causal": int(causal),
            "half": half}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    batch, sq, hq, dim = (case[key] for key in ("batch", "sq", "hq", "dim"))
    return {
        "o": ((batch, sq, hq, dim), "float16" if case["half"] else "bfloat16"),
        "lse": ((batch, hq, sq), "float32"),
    }


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    q, k, v, causal, softmax_scale = data
    return {
        "q": q, "k": k, "v": v, "batch": case["batch"], "seqlen_q": case["sq"], "seqlen_k": case["sk"],
        "heads_q": case["hq"], "heads_k": case["hk"], "head_dim": case["dim"], "half": case["half"],
        "causal": int(causal), "softmax_scale": softmax_scale,
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """16 MiB, and where sq <= 128 (too few query tiles to fill a device) min(256 MiB, 32 · batch · hq · sq · (dim + 2)
    · 4) for fp32 partial results, maxima and sums of up to 32 splits of the keys, or as many as fit.
    """
    if case["sq"] > 128:
        return 16 * _MIB
    rows = case["batch"] * case["hq"] * case["sq"]
    return 16 * _MIB + min(256 * _MIB, 32 * rows * (case["dim"] + 2) * 4)


def flops(case: Mapping[str, Any]) -> int:
    """4 · dim per head and visible (query, key) pair: two products. The exponentials are not counted."""
    pairs = visible_pairs(case["sq"], case["sk"], bool(case["causal"]))
    return 4 * case["batch"] * case["hq"] * case["dim"] * pairs


def bytes_moved(case: Mapping[str, Any]) -> int:
    """q (rows that see a key), k, v and o at 2 bytes, lse at 4, each once."""
    batch, sq, sk, hq, hk, dim = (case[key] for key in ("batch", "sq", "sk", "hq", "hk", "dim"))
    read = min(sq, sk) if case["causal"] else sq
    return batch * (2 * dim * (hq * read + 2 * hk * sk + hq * sq) + 4 * hq * sq)
