# SPDX-License-Identifier: MIT
"""Builds and cases of check_attention.py: which tile shapes of which kernels, what is checked, what is timed."""

from __future__ import annotations

from typing import Any

# Builds: label -> (variant, arch: "native" or "sm_89 ptx", defines). Labels that begin with "tiles" are optional.
BUILDS: dict[str, dict[str, tuple[str, str, dict[str, int]]]] = {
    "flash_attention": {
        "wgmma": ("wgmma_tma", "native", {}),
        "ours": ("mma_sync", "native", {}),
        "ada": ("mma_sync", "sm_89 ptx", {}),
        "tilesA": ("mma_sync", "native", {"D64_WARPS": 8, "D128_KEYS": 48, "D256_KEYS": 32}),
    },
    "mla_decode": {
        "wgmma": ("wgmma_tma", "native", {}),
        "ours": ("mma_sync", "native", {}),
        "ada": ("mma_sync", "sm_89 ptx", {}),
        "tilesA": ("mma_sync", "native", {"ROWS16_STAGES": 5, "ROWS16_BLOCKS": 1, "ROWS32_STAGES": 4}),
    },
}


def flash(batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, causal: int, half: int = 0) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "half": half}


def mla(batch: int, hq: int, sk: int, lens: str = "uniform", sq: int = 1, causal: int = 0) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "hq": hq, "sk": sk, "lens": lens, "causal": causal}


CHECKS = {
    "flash_attention": [
        *(flash(*size, dim, causal, half) for dim in (64, 128, 256) for causal in (0, 1)
          for half, size in enumerate([(1, 512, 512, 8, 8), (2, 113, 203, 4, 2)])),
        *(flash(1, 1, 1, 1, 1, dim, 1) for dim in (64, 128, 256)),
        flash(3, 17, 1, 2, 1, 64, 1), flash(1, 300, 77, 3, 1, 128, 1), flash(1, 129, 64, 3, 3, 256, 1, 1),
        flash(1, 1, 8191, 16, 2, 64, 1), flash(4, 1, 4099, 32, 8, 128, 1), flash(1, 33, 1000, 8, 1, 256, 1),
        flash(2, 1024, 1024, 16, 16, 64, 1), flash(1, 2048, 2048, 8, 2, 128, 1), flash(1, 777, 1999, 4, 4, 256, 1, 1),
        flash(1, 1030, 515, 8, 4, 128, 1), flash(1, 4096, 4096, 8, 8, 128, 0), flash(1, 8192, 8192, 4, 4, 64, 0, 1),
        flash(1, 16384, 16384, 1, 1, 128, 1), flash(5, 64, 65, 7, 7, 64, 0), flash(1, 127, 129, 2, 2, 256, 0),
    ],
    "mla_decode": [
        mla(1, 16, 1), mla(1, 16, 64), mla(4, 16, 130, "mixed"), mla(5, 16, 333, "mixed", 2, 1),
        mla(6, 16, 200, "mixed", 2, 0), mla(3, 64, 65), mla(4, 64, 300, "mixed", 2, 1),
        mla(2, 128, 100, "ragged", 2, 1), mla(5, 128, 1000, "mixed"), mla(7, 64, 3001, "mixed", 2, 1),
        mla(32, 16, 4096, "mixed"),
        mla(128, 16, 500, "ragged"), mla(1, 16, 16384, "uniform", 2, 1), mla(128, 128, 512, "mixed", 2, 1),
        mla(1, 128, 32768), mla(16, 128, 2048, "ragged"), mla(128, 16, 2048),
    ],
}
TIMED = {
    "flash_attention": [
        flash(1, 512, 512, 8, 8, 64, 0, 1), flash(1, 512, 512, 8, 8, 64, 0), flash(1, 512, 512, 8, 8, 64, 1),
        *(flash(16384 // s, s, s, h, h, dim, causal)
          for dim, h in ((64, 32), (128, 16), (256, 8)) for s in (512, 2048, 8192, 16384) for causal in (0, 1)),
        flash(4, 1, 4096, 32, 8, 128, 1), flash(1, 64, 16384, 16, 2, 128, 1),
    ],
    "mla_decode": [
        mla(128, 16, 4096), mla(128, 16, 8192), mla(4, 16, 1024), mla(4, 16, 8192), mla(32, 16, 8192),
        mla(64, 16, 8192), mla(1, 16, 32768), mla(1, 128, 32768), mla(128, 64, 4096), mla(128, 128, 4096),
        mla(32, 128, 8192), mla(64, 128, 8192, "ragged"), mla(128, 16, 8192, "ragged"),
        mla(64, 16, 4096, "uniform", 2, 1),
    ],
}
