# SPDX-License-Identifier: MIT
"""Binds mla_decode's data to ``kernel.h`` and counts the least work of one call.

The lengths of a batch are a function of the case alone (a seed only permutes them), so the counts here are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attention import decode_lengths

SYMBOL = "mla_decode"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("q",)                # every link of the judge's chain redraws these; all outputs depend on them

_MIB = 1 << 20


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "bf16"


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data`` as far as shapes tell it: everything that a call needs.

    It lacks sk and lens: they are values in a tensor, and reading those waits for the device. So ``flops`` and
    ``bytes_moved`` refuse this case; they never count a different one.
    """
    q, _, _, _, causal, _ = data
    batch, sq, hq, _ = q.shape
    return {"batch": batch, "sq": sq, "hq": hq, "causal": int(causal)}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    batch, sq, hq = (case[key] for key in ("batch", "sq", "hq"))
    return {"o": ((batch, sq, hq, 512), "bfloat16"), "lse": ((batch, hq, sq), "float32")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    q, kv_cache, block_table, seqlens, causal, softmax_scale = data
    return {
        "q": q, "kv_cache": kv_cache, "block_table": block_table, "seqlens": seqlens, "batch": case["batch"],
        "seqlen_q": case["sq"], "heads_q": case["hq"], "num_blocks": kv_cache.shape[0],
        "max_blocks_per_seq": block_table.shape[1], "causal": int(causal), "softmax_scale": softmax_scale,
    }


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """1 MiB, and room for partial results, fp32 with their maxima and sums, each sq · hq · (512 + 2) · 4 bytes.

    Enough for either way to share the work: 64 splits of every request (as many as fit into 512 MiB, at least 2), or
    the whole batch cut into one piece per thread block of the largest GPU (304 multiprocessors) plus one per request.
    """
    piece = case["sq"] * case["hq"] * (512 + 2) * 4
    split = case["batch"] * piece
    return _MIB + max(2 * split, min(64 * split, 512 * _MIB), (304 + case["batch"]) * piece)


def flops(case: Mapping[str, Any]) -> int:
    """2 · (576 + 512) per head and visible (query, token) pair. The exponentials are not counted."""
    hidden = range(case["sq"]) if case["causal"] else [0] * case["sq"]       # tokens hidden from each query
    lengths = decode_lengths(case["batch"], case["sk"], case["lens"])
    pairs = sum(max(0, length - few) for length in lengths for few in hidden)
    return 2 * (576 + 512) * case["hq"] * pairs


def bytes_moved(case: Mapping[str, Any]) -> int:
    """The live tokens of the cache (1152 bytes each), the block-table entries of their pages, q, o, lse and lengths."""
    lengths = decode_lengths(case["batch"], case["sk"], case["lens"])
    rows = case["batch"] * case["sq"] * case["hq"]
    pages = sum(-(-length // 64) for length in lengths)
    return 1152 * sum(lengths) + 4 * pages + rows * (2 * 576 + 2 * 512 + 4) + 4 * case["batch"]
