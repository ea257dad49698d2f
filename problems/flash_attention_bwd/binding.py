# SPDX-License-Identifier: MIT
"""Binds flash_attention_bwd's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attention_queries import visible_pairs

SYMBOL = "flash_attention_bwd"
DATA_OUTPUTS: dict[str, int] = {}
# Every link of the judge's chain redraws these: all outputs depend on them, and o and lse still follow from q, k and v.
# A kernel could keep p from link to link, but reading it costs as much as computing it: 2 bytes or 2 · dim FLOP a pair.
FRESH = ("dout",)

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp16" if case["half"] else "bf16"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed, from shapes only. A leaderboard passes no case."""
    q, k, *_, causal, _ = data
    batch, sq, hq, dim = q.shape
    half = int(str(q.dtype) == "torch.float16")
    return {"batch": batch, "sq": sq, "sk": k.shape[1], "hq": hq, "hk": k.shape[2], "dim": dim, "causal": int(causal),
            "half": half}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    batch, sq, sk, hq, hk, dim = (case[key] for key in ("batch", "sq", "sk", "hq", "hk", "dim"))
    dtype = "float16" if case["half"] else "bfloat16"
    keys = ((batch, sk, hk, dim), dtype)
    return {"dq": ((batch, sq, hq, dim), dtype), "dk": keys, "dv": keys}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    q, k, v, o, dout, lse, causal, softmax_scale = data
    return {
        "q": q, "k": k, "v": v, "o": o, "dout": dout, "lse": lse, "batch": case["batch"], "seqlen_q": case["sq"],
        "seqlen_k": case["sk"], "heads_q": case["hq"], "heads_k": case["hk"], "head_dim": case["dim"],
        "half": case["half"], "causal": int(causal), "softmax_scale": softmax_scale,
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """1 MiB, and in fp32 dq and two numbers per query row (delta, and lse in another base), dk and dv: sums of any
    order of the work, by blocks that share rows or keys. Lengths are rounded up to multiples of 128.
    """
    batch, sq, sk, hq, hk, dim = (case[key] for key in ("batch", "sq", "sk", "hq", "hk", "dim"))
    queries = batch * hq * (-(-sq // 128) * 128)
    keys = batch * hk * (-(-sk // 128) * 128)
    return _MIB + 4 * (queries * (dim + 2) + 2 * keys * dim)


def flops(case: Mapping[str, Any]) -> int:
    """10 · dim per head and visible (query, key) pair: five products. The exponentials and delta are not counted."""
    pairs = visible_pairs(case["sq"], case["sk"], bool(case["causal"]))
    return 10 * case["batch"] * case["hq"] * case["dim"] * pairs


def bytes_moved(case: Mapping[str, Any]) -> int:
    """q, o, dout (2 bytes) and lse (4) of rows that see a key, k, v, and dq, dk, dv of all, each once."""
    batch, sq, sk, hq, hk, dim = (case[key] for key in ("batch", "sq", "sk", "hq", "hk", "dim"))
    read = min(sq, sk) if case["causal"] else sq
    return batch * (2 * dim * (hq * (3 * read + sq) + 4 * hk * sk) + 4 * hq * read)
