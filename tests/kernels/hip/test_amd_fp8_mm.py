# SPDX-License-Identifier: MIT
"""kernels/hip/amd_fp8_mm/mfma.hip on the emulated MI300X: K-outermost operands, by two tolerances."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.hip import emulated, gemm_cases
from tests.kernels.hip.conftest import Builder

UNSUPPORTED = -1


def run(kernel: emulated.Kernel, product: gemm_cases.Product, workspace_bytes: int = 0) -> np.ndarray:
    """c as bf16 bit patterns, from poisoned outputs and workspace; every operand but c is K-outermost."""
    m, n, k = product.shape
    c = np.full((m, n), 0x7FFF, np.uint16)
    workspace = np.full(workspace_bytes, 0xFF, np.uint8) if workspace_bytes else None
    operands = [x.T.copy() for x in (product.a, product.b, product.a_scale, product.b_scale)]
    status = kernel(*operands, c, m, n, k, workspace, workspace_bytes, None)
    assert status == 0
    return c


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [0, 64, 128])
@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 128), (96, 576, 128), (64, 64, 384)])
def test_product(hip_kernel: Builder, rows: int, m: int, n: int, k: int) -> None:
    product = gemm_cases.make_product(m, n, k)
    c = run(hip_kernel("amd_fp8_mm", TILE_ROWS=rows), product)
    gemm_cases.check(product, c)
    want = gemm_cases.expected(product)[0]
    np.testing.assert_allclose(emulated.from_bf16(c), want, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(("m", "n"), [(16, 16), (48, 144), (144, 80), (272, 272)])
def test_tiles_that_stick_out(hip_kernel: Builder, m: int, n: int) -> None:
    product = gemm_cases.make_product(m, n, 128)
    gemm_cases.check(product, run(hip_kernel("amd_fp8_mm"), product))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [64, 128])
def test_calls_give_the_same_bits(hip_kernel: Builder, rows: int) -> None:
    product = gemm_cases.make_product(160, 192, 384)
    kernel = hip_kernel("amd_fp8_mm", TILE_ROWS=rows)
    c = run(kernel, product)
    gemm_cases.check(product, c)
    np.testing.assert_array_equal(c, run(kernel, product))


@pytest.mark.parametrize("workspace_bytes", [0, 200_000, 1 << 20])
def test_parts_of_k(hip_kernel: Builder, workspace_bytes: int) -> None:
    """No part, two of the eight that four K blocks each would allow, and all."""
    product = gemm_cases.make_product(96, 208, 9 * 128)
    gemm_cases.check(product, run(hip_kernel("amd_fp8_mm"), product, workspace_bytes=workspace_bytes))


@pytest.mark.slow
def test_same_bits_as_the_k_innermost_kernel(hip_kernel: Builder) -> None:
    """With 64 rows both multiply the same LDS panels: layout in memory must not change a bit."""
    product = gemm_cases.make_product(96, 192, 256)
    c = np.zeros((96, 192), np.uint16)
    operands = (product.a, product.b, product.a_scale.T.copy(), product.b_scale)
    assert hip_kernel("fp8_gemm", TILE_ROWS=64)(*operands, c, 96, 192, 256, None, 0, None) == 0
    np.testing.assert_array_equal(run(hip_kernel("amd_fp8_mm", TILE_ROWS=64), product), c)


def test_workgroups_go_from_tile_to_tile(hip_kernel: Builder) -> None:
    """Two tiles more than the 608 workgroups that 304 compute units hold; the last one sticks out."""
    product = gemm_cases.make_product(128 * 609 + 16, 16, 256)
    gemm_cases.check(product, run(hip_kernel("amd_fp8_mm"), product))


@pytest.mark.parametrize("workspace_bytes", [0, 1 << 22])
def test_a_nan_stays_in_its_row(hip_kernel: Builder, workspace_bytes: int) -> None:
    product = gemm_cases.make_product(144, 144, 512)
    product.a[131, 300] = 0x80
    c = emulated.from_bf16(run(hip_kernel("amd_fp8_mm"), product, workspace_bytes=workspace_bytes))
    assert (np.isnan(c).any(axis=1) == (np.arange(144) == 131)).all()
    assert np.isnan(c[131]).all()


@pytest.mark.parametrize(("m", "n", "k"), [(0, 64, 128), (40, 64, 128), (64, 72, 128), (64, 64, 192), (64, 64, 0)])
def test_declines_what_it_cannot_do(hip_kernel: Builder, m: int, n: int, k: int) -> None:
    c = np.full((64, 64), 0x7FFF, np.uint16)
    other = np.zeros(64, np.uint8)
    status = hip_kernel("amd_fp8_mm")(other, other, other, other, c, m, n, k, None, 0, None)
    assert status == UNSUPPORTED
    assert (c == 0x7FFF).all()
