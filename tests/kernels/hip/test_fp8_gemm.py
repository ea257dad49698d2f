# SPDX-License-Identifier: MIT
"""kernels/hip/fp8_gemm/mfma.hip on the emulated MI300X: the kernel's own code against an fp64 product."""

from __future__ import annotations

import numpy as np
import pytest

from scoring.ipc.emulator import Emulator
from tests.kernels.hip import emulated, gemm_cases
from tests.kernels.hip.conftest import Builder

UNSUPPORTED = -1


def run(kernel: emulated.Kernel, product: gemm_cases.Product, workspace_bytes: int = 0) -> np.ndarray:
    """c as bf16 bit patterns, from poisoned outputs and workspace."""
    m, n, k = product.shape
    c = np.full((m, n), 0x7FFF, np.uint16)
    workspace = np.full(workspace_bytes, 0xFF, np.uint8) if workspace_bytes else None
    status = kernel(
        product.a, product.b, product.a_scale.T.copy(), product.b_scale, c, m, n, k, workspace, workspace_bytes, None)
    assert status == 0
    return c


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [0, 32, 64, 128, 256])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 64, 128), (7, 576, 128), (33, 130, 256), (96, 64, 384)])
def test_product(hip_kernel: Builder, rows: int, m: int, n: int, k: int) -> None:
    product = gemm_cases.make_product(m, n, k)
    gemm_cases.check(product, run(hip_kernel("fp8_gemm", TILE_ROWS=rows), product))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 3), (17, 129), (40, 100), (130, 200), (300, 260)])
def test_tails_of_m_and_n(hip_kernel: Builder, m: int, n: int) -> None:
    product = gemm_cases.make_product(m, n, 128)
    gemm_cases.check(product, run(hip_kernel("fp8_gemm"), product))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [128, 256])
def test_calls_give_the_same_bits(hip_kernel: Builder, rows: int) -> None:
    product = gemm_cases.make_product(150, 192, 384)
    kernel = hip_kernel("fp8_gemm", TILE_ROWS=rows)
    c = run(kernel, product)
    gemm_cases.check(product, c)
    np.testing.assert_array_equal(c, run(kernel, product))


@pytest.mark.parametrize(("rows", "m", "n", "k"), [
    (256, 600, 520, 256),       # nine large tiles, ragged both ways
    (128, 300, 264, 384),
    (0, 900, 560, 128),         # eight large tiles, the ninth to twelfth in small ones, of which some lie outside
])
def test_workgroups_go_from_tile_to_tile(hip_kernel: Builder, rows: int, m: int, n: int, k: int) -> None:
    """As on a device with few compute units: every workgroup has several tiles, and each K block its scales."""
    product = gemm_cases.make_product(m, n, k)
    units = 8 if rows == 0 else 2
    gemm_cases.check(product, run(hip_kernel("fp8_gemm", TILE_ROWS=rows, COMPUTE_UNITS=units), product))


@pytest.mark.parametrize(("m", "n", "k", "workgroups"), [
    (490, 504, 256, [8]),           # two K blocks: a tile of 256 x 128 for every compute unit
    (490, 504, 384, [16]),          # three: two of 128 x 128
    (900, 560, 128, [8, 16]),       # eight large tiles, twelve pieces and four beyond the end
])
def test_launches(
    emulator: Emulator, hip_kernel: Builder, m: int, n: int, k: int, workgroups: list[int]) -> None:
    product = gemm_cases.make_product(m, n, k)
    kernel = hip_kernel("fp8_gemm", COMPUTE_UNITS=8)
    emulator.set("counters", "1")
    try:
        emulator.take_counters()
        gemm_cases.check(product, run(kernel, product))
        assert [each["workgroups"] for each in emulator.take_counters()] == workgroups
    finally:
        emulator.set("counters", "0")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("m", "n"), [(3, 66), (40, 200)])
@pytest.mark.parametrize("parts", [2, 8])
def test_parts_of_k(hip_kernel: Builder, parts: int, m: int, n: int) -> None:
    """Seven K blocks do not divide evenly; the planes come poisoned."""
    product = gemm_cases.make_product(m, n, 7 * 128)
    plane = -(-m * n // 4) * 16
    c = run(hip_kernel("fp8_gemm", PARTS=parts), product, workspace_bytes=parts * plane)
    gemm_cases.check(product, c)


@pytest.mark.parametrize("workspace_bytes", [0, 16, 3 * 64 * 64 * 4 + 8])
def test_a_small_workspace_means_fewer_parts(hip_kernel: Builder, workspace_bytes: int) -> None:
    product = gemm_cases.make_product(64, 64, 16 * 128)
    gemm_cases.check(product, run(hip_kernel("fp8_gemm"), product, workspace_bytes=workspace_bytes))


def test_scales_of_all_sizes(hip_kernel: Builder) -> None:
    product = gemm_cases.make_product(20, 140, 384)
    rng = np.random.default_rng(5)
    product.a_scale[:] *= np.exp2(rng.integers(-10, 11, product.a_scale.shape)).astype(np.float32)
    product.b_scale[0, 1] = 0.0
    gemm_cases.check(product, run(hip_kernel("fp8_gemm"), product))


def test_nan_stays_in_its_row_and_column(hip_kernel: Builder) -> None:
    product = gemm_cases.make_product(20, 70, 256)
    product.a[3, 200] = 0x80
    product.b[69, 0] = 0x80
    nan = np.isnan(emulated.from_bf16(run(hip_kernel("fp8_gemm"), product)))
    assert nan[3].all()
    assert nan[:, 69].all()
    assert nan.sum() == 70 + 20 - 1


@pytest.mark.parametrize(("m", "n", "k"), [(0, 64, 128), (64, 0, 128), (64, 64, 0), (64, 64, 192), (64, 64, 64)])
def test_declines_what_it_cannot_do(hip_kernel: Builder, m: int, n: int, k: int) -> None:
    c = np.full((64, 64), 0x7FFF, np.uint16)
    other = np.zeros(64, np.uint8)
    status = hip_kernel("fp8_gemm")(other, other, other, other, c, m, n, k, None, 0, None)
    assert status == UNSUPPORTED
    assert (c == 0x7FFF).all()
