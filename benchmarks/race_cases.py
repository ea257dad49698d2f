# SPDX-License-Identifier: MIT
"""Cases of race.py's verbs, by verb and problem, where the problem's own benchmarks do not fit."""

from __future__ import annotations

from typing import Any

Params = dict[str, Any]


def shape(text: str) -> Params:
    """``NAME=VALUE,...`` as the parameters of a case; raises ``ValueError`` for anything else."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals and value for name, equals, value in pairs):
        raise ValueError(f"--shape {text}: NAME=VALUE,NAME=VALUE,... is expected")
    return {name: int(value) if value.lstrip("-").isdigit() else value for name, _equals, value in pairs}


def varlen(batch: int, total: int, lens: str, hq: int, hk: int, dim: int, causal: int, queries: int = 0) -> Params:
    return {"batch": batch, "tq": queries or total, "tk": total, "lens": lens, "hq": hq, "hk": hk, "dim": dim,
            "causal": causal, "half": 0}


def flash(batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, causal: int, half: int = 0) -> Params:
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "half": half}


def mla(batch: int, hq: int, sk: int, lens: str = "uniform", sq: int = 1, causal: int = 0) -> Params:
    return {"batch": batch, "sq": sq, "hq": hq, "sk": sk, "lens": lens, "causal": causal}


def gemm(m: int, n: int, k: int) -> Params:
    return {"m": m, "n": n, "k": k}


# Other shapes in turn than the call before: head sizes, masks, lengths, splits.
_BACK_TO_BACK = {
    "fp8_gemm": [gemm(*size) for size in (
        (1, 576, 7168), (64, 2112, 7168), (128, 7168, 1536), (1024, 576, 7168), (530, 1096, 2048), (7, 577, 256))],
    "flash_attention": [
        *(flash(1, sq, sk, 8, hk, dim, causal) for dim, hk in ((64, 8), (128, 2), (256, 8))
          for causal, sq, sk in ((1, 600, 600), (0, 300, 420), (1, 1, 4099))), flash(1, 16, 4000, 32, 4, 128, 1)],
    "flash_attention_varlen": [
        *(varlen(16, 8192, lens, hq, hk, dim, causal) for dim, hq, hk in ((64, 16, 16), (128, 16, 4), (256, 8, 8))
          for causal, lens in ((1, "uniform"), (1, "tail"), (0, "tail"), (1, "mixed"))),
        varlen(16, 16384, "uniform", 32, 32, 64, 1), varlen(7, 4000, "decode", 8, 2, 64, 1, 7)],
    "mla_decode": [
        mla(32, 16, 1000), mla(31, 16, 4096), mla(64, 16, 2000), mla(32, 16, 4096, "ragged"), mla(4, 64, 300, "mixed"),
        mla(2, 128, 100, "ragged", 2, 1), mla(1, 16, 16384)],
}
_BACK_TO_BACK["mla_decode_fp8"] = _BACK_TO_BACK["mla_decode"]

_LATE = {
    "mla_decode": [
        mla(32, 16, 2000), mla(64, 16, 1500, "ragged"), mla(128, 16, 300, "mixed"), mla(3, 16, 5000, "ragged"),
        mla(8, 64, 900, "mixed"), mla(4, 128, 900, "ragged")],
    "flash_attention_varlen": [varlen(16, 8192, "tail", 16, 16, 128, 1), varlen(7, 4000, "decode", 8, 2, 64, 1, 7)],
}
_LATE["mla_decode_fp8"] = _LATE["mla_decode"]

# The smallest calls that reach every form of the MLA kernels and of the combine step, on 132 multiprocessors.
_ONCE = {
    "mla_decode_fp8": [
        mla(1, 16, 330), mla(3, 16, 130, "mixed"), mla(64, 16, 128), mla(42, 16, 192), mla(31, 16, 256),
        mla(32, 16, 256), mla(1, 16, 512), mla(1, 16, 1700), mla(24, 16, 200, "mixed"), mla(128, 16, 100, "ragged"),
        mla(20, 16, 1280, "ragged"), mla(2, 16, 300, "ragged"), mla(5, 16, 300, "mixed"), mla(9, 16, 300, "mixed"),
        mla(2, 16, 130, "mixed", 2, 1), mla(2, 64, 130, "mixed"), mla(1, 128, 330), mla(1, 128, 1300)],
}
_ONCE["mla_decode"] = _ONCE["mla_decode_fp8"]

_AMD = [gemm(m, n, k) for m in (1024, 6144) for n, k in (
    (1536, 7168), (3072, 1536), (576, 7168), (7168, 256), (7168, 2048), (4608, 7168), (7168, 2304), (512, 7168),
    (4096, 512))]
_PLANS = {
    "fp8_gemm": [
        *_AMD, gemm(4096, 7168, 16384), gemm(8192, 8192, 8192), gemm(4096, 4096, 7168), gemm(4096, 24576, 1536),
        gemm(4096, 2112, 7168), gemm(4096, 7168, 2048), gemm(4096, 32768, 512),
        *(gemm(m, n, k) for m in (1, 16, 64, 128)
          for n, k in ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (576, 7168)))],
    "amd_fp8_mm": _AMD,
}

CASES: dict[str, dict[str, list[Params]]] = {
    "back-to-back": _BACK_TO_BACK, "late": _LATE, "once": _ONCE, "plans": _PLANS,
}
