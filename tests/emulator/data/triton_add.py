# SPDX-License-Identifier: MIT
"""A Triton kernel, and its code object for gfx942; in a file of its own, as Triton reads its source."""

from __future__ import annotations

import os
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    tl.store(out + index, tl.load(x + index, inside) + tl.load(y + index, inside), inside)


def code_object(folder: Path) -> bytes:
    """Compiled for gfx942 in waves of 64, with Triton's cache in ``folder``."""
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "count": "i32", "BLOCK": "constexpr"}
    built = triton.compile(ASTSource(add, signature, {"BLOCK": 256}), target=GPUTarget("hip", "gfx942", 64))
    return built.asm["hsaco"]
