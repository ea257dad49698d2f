# SPDX-License-Identifier: MIT
"""Binds flash_attention_fp8's data to ``kernel.h`` and counts the least work of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attention_queries import visible_pairs

SYMBOL = "flash_attention_fp8"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("q",)                # every link of the judge's chain redraws these; all outputs depend on them

SCALES = ("tensor", "head", "block")             # kernel.h's 0, 1, 2

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "fp8"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed and the options of its values, ``rotated`` and ``outliers``."""
    q, k, *_, causal, _, scales = data
    batch, sq, hq, dim = q.shape
    return {"batch": batch, "sq": sq, "sk": k.shape[1], "hq": hq, "hk": k.shape[2], "dim": dim, "causal": int(causal),
            "scales": scales}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    batch, sq, hq, dim = (case[key] for key in ("batch", "sq", "hq", "dim"))
    return {"o": ((batch, sq, hq, dim), "bfloat16"), "lse": ((batch, hq, sq), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, scales = data
    return {
        "q": q, "k": k, "v": v, "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale, "batch": case["batch"],
        "seqlen_q": case["sq"], "seqlen_k": case["sk"], "heads_q": case["hq"], "heads_k": case["hk"],
        "head_dim": case["dim"], "scales": SCALES.index(scales), "causal": int(causal), "softmax_scale": softmax_scale,
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """16 MiB, where sq <= 128 (too few query tiles to fill a device) min(256 MiB, 32 · batch · hq · sq · (dim + 2) · 4)
    for fp32 partial results, maxima and sums of up to 32 splits of the keys, or as many as fit; and the size of v with
    its tokens rounded up to 128, for a transposed copy.
    """
    batch, sq, hq, dim = (case[key] for key in ("batch", "sq", "hq", "dim"))
    splits = min(256 * _MIB, 32 * batch * hq * sq * (dim + 2) * 4) if sq <= 128 else 0
    return 16 * _MIB + splits + batch * case["hk"] * dim * (-(-case["sk"] // 128) * 128)


def flops(case: Mapping[str, Any]) -> int:
    """4 · dim per head and visible (query, key) pair: two products. Exponentials and scales are not counted."""
    pairs = visible_pairs(case["sq"], case["sk"], bool(case["causal"]))
    return 4 * case["batch"] * case["hq"] * case["dim"] * pairs


def bytes_moved(case: Mapping[str, Any]) -> int:
    """q (rows that see a key), k and v at 1 byte, o at 2, lse and the scales of what is read at 4, each once."""
    batch, sq, sk, hq, hk, dim = (case[key] for key in ("batch", "sq", "sk", "hq", "hk", "dim"))
    read = min(sq, sk) if case["causal"] else sq
    scales = {
        "tensor": 3, "head": batch * (hq + 2 * hk),
        "block": batch * (hq * (-(-sq // 128) - (sq - read) // 128) + 2 * hk * -(-sk // 128)),
    }[case["scales"]]
    return batch * (dim * (hq * read + 2 * hk * sk + 2 * hq * sq) + 4 * hq * sq) + 4 * scales
