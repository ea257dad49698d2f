# SPDX-License-Identifier: MIT
"""kernels/hip/amd_fp8_mm/mfma.hip on the host: K-outermost operands, by the leaderboard's rule and by a tighter one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.hip import gemm_cases, host
from tests.kernels.hip.conftest import Builder

UNSUPPORTED = -1


def run(
    kernel: host.HostKernel, product: gemm_cases.Product, workspace_bytes: int = 0, order: int = 0
) -> np.ndarray:
    """c as bf16 bit patterns, from poisoned outputs, workspace and LDS; every operand but c is K-outermost."""
    m, n, k = product.shape
    c = host.Guarded(np.full((m, n), 0x7FFF, np.uint16))
    workspace = host.Guarded(np.full(workspace_bytes, 0xFF, np.uint8)) if workspace_bytes else None
    operands = [host.Guarded(x.T.copy()) for x in (product.a, product.b, product.a_scale, product.b_scale)]
    status = kernel(*operands, c, m, n, k, workspace, host.Size(workspace_bytes), None, order=order, poison=0x80)
    assert status == 0
    return c.array.copy()


@pytest.mark.parametrize("rows", [0, 64, 128, 256])
@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 128), (96, 576, 128), (64, 64, 384)])
def test_product(host_kernel: Builder, rows: int, m: int, n: int, k: int) -> None:
    product = gemm_cases.make_product(m, n, k)
    c = run(host_kernel("amd_fp8_mm", TILE_ROWS=rows), product)
    gemm_cases.check(product, c)
    want = gemm_cases.expected(product)[0]
    np.testing.assert_allclose(host.from_bf16(c), want, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(("m", "n"), [(16, 16), (48, 144), (144, 80), (272, 272)])
def test_tiles_that_stick_out(host_kernel: Builder, m: int, n: int) -> None:
    product = gemm_cases.make_product(m, n, 128)
    gemm_cases.check(product, run(host_kernel("amd_fp8_mm"), product))


@pytest.mark.parametrize("order", host.ORDERS)
@pytest.mark.parametrize("rows", [128, 256])
def test_any_order_of_waves_gives_the_same_bits(host_kernel: Builder, rows: int, order: int) -> None:
    product = gemm_cases.make_product(160, 192, 384)
    kernel = host_kernel("amd_fp8_mm", TILE_ROWS=rows)
    c = run(kernel, product, order=order)
    gemm_cases.check(product, c)
    np.testing.assert_array_equal(c, run(kernel, product, order=0))


@pytest.mark.parametrize("workspace_bytes", [0, 200_000, 1 << 20])
def test_parts_of_k(host_kernel: Builder, workspace_bytes: int) -> None:
    """No part, two of the eight that four K blocks each would allow, and all."""
    product = gemm_cases.make_product(96, 208, 9 * 128)
    gemm_cases.check(product, run(host_kernel("amd_fp8_mm"), product, workspace_bytes=workspace_bytes))


def test_same_bits_as_the_k_innermost_kernel(host_kernel: Builder) -> None:
    """Both multiply the same LDS panels: layout in memory must not change a bit."""
    product = gemm_cases.make_product(96, 192, 256)
    c = host.Guarded(np.zeros((96, 192), np.uint16))
    operands = [host.Guarded(x) for x in (product.a, product.b, product.a_scale.T.copy(), product.b_scale)]
    assert host_kernel("fp8_gemm")(*operands, c, 96, 192, 256, None, host.Size(0), None) == 0
    np.testing.assert_array_equal(run(host_kernel("amd_fp8_mm"), product), c.array)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 64, 128), (40, 64, 128), (64, 72, 128), (64, 64, 192), (64, 64, 0)])
def test_declines_what_it_cannot_do(host_kernel: Builder, m: int, n: int, k: int) -> None:
    c = host.Guarded(np.full((64, 64), 0x7FFF, np.uint16))
    other = host.Guarded(np.zeros(64, np.uint8))
    status = host_kernel("amd_fp8_mm")(other, other, other, other, c, m, n, k, None, host.Size(0), None)
    assert status == UNSUPPORTED
    assert (c.array == 0x7FFF).all()
