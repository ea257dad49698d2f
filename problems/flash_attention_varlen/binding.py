# SPDX-License-Identifier: MIT
"""Binds flash_attention_varlen's data to ``kernel.h`` and counts the least work of one call.

The lengths of a batch are a function of the case alone (a seed only permutes them), so the counts here are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attention_queries import visible_pairs
from attention_sequences import sequence_lengths

SYMBOL = "flash_attention_varlen"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("q",)                # every link of the judge's chain redraws these; all outputs depend on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp16" if case["half"] else "bf16"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data`` as far as shapes tell it: everything that a call needs.

    It lacks tk and lens: they are values in a tensor, and reading those waits for the device. So ``flops`` and
    ``bytes_moved`` refuse this case; they never count a different one.
    """
    q, k, _, starts, _, _, _, causal, _ = data
    tq, hq, dim = q.shape
    half = int(str(q.dtype) == "torch.float16")
    return {"batch": len(starts) - 1, "tq": tq, "hq": hq, "hk": k.shape[1], "dim": dim, "causal": int(causal),
            "half": half}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    tq, hq, dim = (case[key] for key in ("tq", "hq", "dim"))
    return {"o": ((tq, hq, dim), "float16" if case["half"] else "bfloat16"), "lse": ((hq, tq), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale = data
    return {
        "q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "batch": case["batch"],
        "total_q": case["tq"], "total_k": k.shape[0], "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k,
        "heads_q": case["hq"], "heads_k": case["hk"], "head_dim": case["dim"], "half": case["half"],
        "causal": int(causal), "softmax_scale": softmax_scale,
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """16 MiB, 32 bytes for each sequence and each 64 pairs of a query and one of the heads that share keys (a plan of
    tiles), and, where there are at most 128 queries per sequence, min(256 MiB, 32 · tq · hq · (dim + 2) · 4) for fp32
    partial results, maxima and sums of up to 32 splits of the keys, or as many as fit.
    """
    plan = 32 * (case["batch"] + case["tq"] * (case["hq"] // case["hk"]) // 64)
    parts = min(256 * _MIB, 32 * case["tq"] * case["hq"] * (case["dim"] + 2) * 4)
    return 16 * _MIB + plan + (parts if case["tq"] <= 128 * case["batch"] else 0)


def _lengths(case: Mapping[str, Any]) -> list[tuple[int, int]]:
    return sequence_lengths(case["batch"], case["tq"], case["tk"], case["lens"])


def flops(case: Mapping[str, Any]) -> int:
    """4 · dim per head and visible (query, key) pair: two products. The exponentials are not counted."""
    pairs = sum(visible_pairs(queries, keys, bool(case["causal"])) for queries, keys in _lengths(case))
    return 4 * case["hq"] * case["dim"] * pairs


def bytes_moved(case: Mapping[str, Any]) -> int:
    """q (rows that see a key), k and v (of sequences with queries) and o at 2 bytes, lse and both offsets at 4."""
    hq, hk, dim = (case[key] for key in ("hq", "hk", "dim"))
    lengths = _lengths(case)
    read = sum(min(queries, keys) if case["causal"] or keys == 0 else queries for queries, keys in lengths)
    seen = sum(keys for queries, keys in lengths if queries > 0)
    return 2 * dim * (hq * read + 2 * hk * seen + hq * case["tq"]) + 4 * hq * case["tq"] + 8 * (case["batch"] + 1)
