# SPDX-License-Identifier: MIT
"""Operands and fp64 reference of the block-scaled products, shared by the tests of both operand layouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.kernels.hip import emulated

BLOCK = 128


@dataclass(frozen=True)
class Product:
    """Logical [rows, k] operands, whatever their order in memory."""

    a: np.ndarray          # [m, k] e4m3fnuz bit patterns
    b: np.ndarray          # [n, k]
    a_scale: np.ndarray    # [m, k / 128] fp32
    b_scale: np.ndarray    # [ceil(n / 128), k / 128] fp32

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.a.shape[0], self.b.shape[0], self.a.shape[1]


def make_product(m: int, n: int, k: int, seed: int = 0) -> Product:
    rng = np.random.default_rng([m, n, k, seed])
    blocks = k // BLOCK
    return Product(
        a=emulated.random_fp8(rng, (m, k)), b=emulated.random_fp8(rng, (n, k)),
        a_scale=rng.standard_normal((m, blocks)).astype(np.float32),
        b_scale=rng.standard_normal((-(-n // BLOCK), blocks)).astype(np.float32),
    )


def expected(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """c in fp64 and the allowed difference: bf16 rounding of c plus fp32 rounding of the sum of magnitudes."""
    values = emulated.fp8_fnuz_values()
    m, n, k = product.shape
    total = np.zeros((m, n))
    magnitude = np.zeros((m, n))
    for block in range(k // BLOCK):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        a, b = values[product.a[:, part]], values[product.b[:, part]]
        scale = product.a_scale[:, block, None].astype(np.float64) * np.repeat(
            product.b_scale[:, block].astype(np.float64), BLOCK)[None, :n]
        total += scale * (a @ b.T)
        magnitude += np.abs(scale) * (np.abs(a) @ np.abs(b).T)
    return total, np.abs(total) * 2.0**-8 + magnitude * 2.0**-20


def check(product: Product, c: np.ndarray) -> None:
    """Assert that ``c`` (bf16 bit patterns) is the product."""
    want, bound = expected(product)
    difference = np.abs(emulated.from_bf16(c) - want)
    wrong = ~(difference <= bound)          # NaN is wrong
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} wrong, first at {tuple(np.argwhere(wrong)[0])}"
