# SPDX-License-Identifier: MIT
"""A Triton kernel and what Triton compiles it to; in a file of its own, as Triton reads its source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def dot(a, b, c, count, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for k in range(0, count, SIZE):
        left = tl.load(a + i[:, None] * count + k + i[None, :])
        sums += tl.dot(left, tl.load(b + (k + i[:, None]) * SIZE + i[None, :]))
    tl.store(c + i[:, None] * SIZE + i[None, :], sums)


def compiled(folder: Path, backend: str, arch: Any, lanes: int) -> dict[str, Any]:
    """All that Triton makes for a GPU, by its kind (``cubin``, ``ptx``, ``hsaco``), with its cache in ``folder``.

    Fusion is chosen, as Triton 3.9 warns where it is not: its default is to change.
    """
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "count": "i32", "SIZE": "constexpr"}
    made = triton.compile(ASTSource(dot, signature, {"SIZE": 32}), target=GPUTarget(backend, arch, lanes),
                          options={"enable_fp_fusion": True})
    return dict(made.asm)
