# SPDX-License-Identifier: MIT
"""The mma_sync FP8 products compute the right thing on emulated GPUs: every tile, tail and split."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.kernels.cuda import planting
from tests.kernels.cuda.gemm_products import Product, ProductKernel, with_plans, with_table
from tests.kernels.cuda.planting import Fault

BUILDS = [(problem, arch) for problem in ("fp8_gemm", "amd_fp8_mm") for arch in ("sm_89", "sm_90a")]


@cache
def built(problem: str, arch: str):
    with TemporaryDirectory() as folder:
        kernel = f"{problem}/mma_sync"
        return ProductKernel(kernel, with_plans(kernel, Path(folder)), arch=arch)


@pytest.fixture(scope="module", params=BUILDS, ids="-".join)
def kernel(request):
    return built(*request.param)


@pytest.fixture
def fp8_gemm():
    return built("fp8_gemm", "sm_89")


@pytest.mark.parametrize("splits", [1, 2])
def test_every_tile_shape_with_tails(kernel, splits):
    size = (130, 193, 384) if kernel.problem == "fp8_gemm" else (160, 192, 384)
    product = Product.random(*size, seed=splits)
    for shape in range(kernel.shapes):
        schedule = "eager" if splits == 2 else "late"
        product.agrees(kernel.multiply(product, (shape, splits), splits_room=2, schedule=schedule))


def test_no_bank_is_used_twice(kernel):
    size = {"m": 130, "n": 193, "k": 384} if kernel.problem == "fp8_gemm" else {"m": 160, "n": 192, "k": 384}
    for shape in range(kernel.shapes):
        assert kernel.conflicts(size, plan=(shape, 1)) == [], shape


def test_more_k_blocks_than_stages_in_uneven_parts(kernel):
    product = Product.random(32, 64, 128 * 11, seed=3)
    for shape in range(kernel.shapes):
        product.agrees(kernel.multiply(product, (shape, 3), splits_room=3))


@pytest.mark.parametrize("size", [(1, 1, 128), (1, 8, 128), (3, 129, 256), (16, 40, 128), (17, 7, 640)])
def test_smallest_and_odd_sizes_by_the_chosen_plan(fp8_gemm, size):
    product = Product.random(*size, seed=4)
    product.agrees(fp8_gemm.multiply(product))
    product.agrees(fp8_gemm.multiply(product, splits_room=4))


def test_split_and_whole_k_agree_and_repeat_to_the_bit(fp8_gemm):
    product = Product.random(9, 96, 1024, seed=5)
    first = fp8_gemm.multiply(product, (0, 4), splits_room=4)
    product.agrees(first)
    np.testing.assert_array_equal(first, fp8_gemm.multiply(product, (0, 4), splits_room=4, schedule="eager"))


def test_zero_scales_give_zero_and_tiny_ones_survive(kernel):
    product = Product.random(32, 64, 256, seed=6)
    product.a_scale[:16] = 0
    product.a_scale[16:] = -1e-30
    product.b_scale[:] = 3e-3
    got = kernel.multiply(product)
    product.agrees(got)
    assert (got[:16] == 0).all()
    assert (got[16:] != 0).any()


def test_a_nan_reaches_its_row_and_no_other(kernel):
    product = Product.random(32, 64, 256, seed=7)
    product.a[5, 200] = 0x7F
    got = kernel.multiply(product)
    assert np.isnan(got[5]).all()
    assert np.isfinite(np.delete(got, 5, 0)).all()


@pytest.mark.parametrize("size", [(0, 64, 128), (32, 0, 128), (32, 64, 0), (32, 64, 200)])
def test_sizes_outside_the_abi_are_declined(kernel, size):
    assert kernel.declines(*size) == -1


def test_amd_declines_rows_it_cannot_load():
    kernel = built("amd_fp8_mm", "sm_89")
    assert kernel.declines(48, 64, 128) == -1
    assert kernel.declines(32, 96, 128) == -1


@pytest.mark.parametrize("processors", [58, 132])
def test_few_tiles_split_k_only_as_far_as_the_workspace_holds(fp8_gemm, processors):
    m, n, k = 16, 2112, 7168
    plane = 4 * m * n
    assert fp8_gemm.chosen(m, n, k, 0, processors)[1] == 1
    assert fp8_gemm.chosen(m, n, k, 3 * plane + 5, processors)[1] in (2, 3)
    assert fp8_gemm.chosen(m, n, k, 64 * plane, processors)[1] >= 3


@pytest.mark.parametrize("size", [(6144, 4608, 7168), (4096, 7168, 2048)])
def test_many_tiles_keep_k_whole_and_take_a_large_tile(fp8_gemm, size):
    shape, splits = fp8_gemm.chosen(*size, 1 << 40, 132)
    assert shape >= fp8_gemm.shapes - 2
    assert splits == 1


FAULTS = {
    "wait": Fault("gemm/*.h", "cp_async_wait<Shape::kStages - 2>();", "cp_async_wait<Shape::kStages - 1>();",
                  "shared-race"),
    "barrier": Fault("gemm/*.h", "        __syncthreads();\n        if (block",
                     "        if (!FAULT) __syncthreads();\n        if (block", "uninitialised"),
    "swizzle": Fault("gemm/*.h", "(swizzled ^ (step << 5))",
                     "(FAULT ? swizzled + (step << 5) : swizzled ^ (step << 5))", "shared-race", 2),
}


def planted(root):
    name = "fp8_gemm/mma_sync"
    with_table(root, name, "Shapes", "ShapeTable<KMajor, TileShape<128, 128, 2, 4, 3>>")
    kernel = ProductKernel(name, with_plans(name, root), arch="sm_89")
    product = Product.random(130, 128, 128 * 6, seed=8)
    return kernel, lambda _fault: product.agrees(kernel.multiply(product, (0, 1)))


def test_faults_are_noticed(tmp_path):
    """A check of the checks: kernels without the wait, the barrier or the matching swizzle do not pass."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
