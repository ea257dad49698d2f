# SPDX-License-Identifier: MIT
"""Cases of MLA decode for the tests of its kernels."""

from __future__ import annotations

from typing import Any

import torch


def case(batch: int, hq: int, sk: int, lens: str = "uniform", sq: int = 1, causal: int = 0) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "hq": hq, "sk": sk, "lens": lens, "causal": causal}


def name(value: Any) -> str:
    """Of a case, or of what stands beside one, for pytest."""
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def check_late_scale(mla: Any, heads: int) -> None:
    """Of a cache in FP8: the largest scale comes late, in one group only, and is 2^20 times those before."""
    size = case(1, heads, 300)
    q, cache, *rest = mla.reference.generate_input(**size, seed=3, device="cpu")
    scales = cache.view(torch.uint8)[..., 512:528].contiguous().view(torch.float32)
    scales *= 2.0**-12
    scales[rest[0][0, 3].item(), 5, 0, 2] *= 2.0**20
    cache.view(torch.uint8)[..., 512:528] = scales.view(torch.uint8)
    mla.verify(size, (q * 2.0**-100, cache, *rest))     # queries below fp16's range, too: probabilities are equal
