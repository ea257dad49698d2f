# SPDX-License-Identifier: MIT
"""benchmarks/tools/bf16_product.hip: fp8_gemm's loop on bf16, on the emulated MI300X, against an fp64 product."""

from __future__ import annotations

import numpy as np
import pytest

from scoring.ipc.emulator import Emulator
from tests.kernels.hip import emulated

FILE = emulated.ROOT / "benchmarks/tools/bf16_product.hip"
PARAMETERS = {"a": "const void*", "b": "const void*", "c": "void*", "m": "int", "n": "int", "k": "int"}


@pytest.mark.parametrize(("rows", "units", "m", "n", "k"), [
    (0, 304, 140, 136, 192),
    (256, 1, 300, 264, 128),        # four large tiles, one workgroup
])
def test_product(emulator: Emulator, rows: int, units: int, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng([m, n, k])
    a, b = (emulated.bf16(rng.standard_normal((count, k)).astype(np.float32)) for count in (m, n))
    c = np.full((m, n), 0x7FFF, np.uint16)
    binary = emulated.compiled(FILE, "fp8_gemm", (("COMPUTE_UNITS", units), ("TILE_ROWS", rows)))
    assert emulated.Kernel(emulator, binary, "bf16_product", PARAMETERS)(a, b, c, m, n, k) == 0

    left, right = (emulated.from_bf16(each).astype(np.float64) for each in (a, b))
    want, magnitude = left @ right.T, np.abs(left) @ np.abs(right).T
    wrong = ~(np.abs(emulated.from_bf16(c) - want) <= np.abs(want) * 2.0**-8 + magnitude * 2.0**-20)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} wrong, first at {tuple(np.argwhere(wrong)[0])}"
