# SPDX-License-Identifier: MIT
"""The case behind a problem's ``data``: what a leaderboard does not hand to ``custom_kernel``.

Each function is copied into packed files as text, so it may use nothing but its argument, and it must not look at the
contents of a tensor (that would wait for the device). A problem that is not listed defines ``case_of(data)`` in its
``binding.py`` instead.
"""

from __future__ import annotations

from collections.abc import Mapping


def gemm_case(data):  # type: ignore[no-untyped-def]
    """m, n and k of a product, from the shapes of its operands."""
    a, b = data[0], data[1]
    return {"m": a.shape[0], "n": b.shape[0], "k": a.shape[1]}


def attention_case(data):  # type: ignore[no-untyped-def]
    """Sizes of an attention problem from q [batch, sq, hq, dim] and k [batch, sk, hk, dim]."""
    q, k, _, causal, _ = data
    batch, sq, hq, dim = q.shape
    half = int(q.element_size() == 2 and str(q.dtype) == "torch.float16")
    return {"batch": batch, "sq": sq, "sk": k.shape[1], "hq": hq, "hk": k.shape[2], "dim": dim, "causal": int(causal),
            "half": half}


def mla_case(data):  # type: ignore[no-untyped-def]
    """Sizes of a paged MLA decode from q [batch, sq, hq, 576]; sk is what the block table has room for."""
    q, _, block_table, _, causal, _ = data
    batch, sq, hq, _ = q.shape
    room = block_table.shape[1] * 64
    return {"batch": batch, "sq": sq, "hq": hq, "sk": room, "lens": "ragged", "causal": int(causal)}


CASE_FUNCTIONS: Mapping[str, str] = {
    "fp8_gemm": "gemm_case",
    "amd_fp8_mm": "gemm_case",
    "flash_attention": "attention_case",
    "mla_decode": "mla_case",
}
