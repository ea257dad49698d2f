# SPDX-License-Identifier: MIT
"""amd_fp8_mm/wgmma_tma is right on an emulated H100: one operand or both transposed, then the Hopper product."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.cuda import planting
from tests.kernels.cuda.gemm_products import Product, ProductKernel, with_plans, with_table
from tests.kernels.cuda.planting import Fault

KERNEL = "amd_fp8_mm/wgmma_tma"


@pytest.fixture(scope="module", params=[1, 2], ids=["one copied", "both copied"])
def kernel(request, tmp_path_factory):
    made = ProductKernel(KERNEL, with_plans(KERNEL, tmp_path_factory.mktemp("plans")), {"COPIES": request.param})
    made.copies = request.param
    return made


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_every_instance_with_tails(kernel, schedule):
    product = Product.random(160, 192, 384, seed=1)
    for plan in kernel.plans(1, 2):
        product.agrees(kernel.multiply(product, plan, schedule=schedule, copies=True))


def test_rings_wrap_and_blocks_walk_several_tiles(kernel):
    product = Product.random(320, 576, 128 * 7, seed=9)
    for plan in kernel.plans(1, 3):
        product.agrees(kernel.multiply(product, plan, copies=True))


@pytest.mark.parametrize("size", [(32, 64, 128), (32, 320, 256), (96, 64, 640), (288, 448, 1152)])
def test_sizes_that_leave_tiles_of_the_transposition_unfilled(kernel, size):
    product = Product.random(*size, seed=2)
    product.agrees(kernel.multiply(product, copies=True))


@pytest.mark.parametrize("chunks", [2, 8])
def test_every_shape_of_the_transposition(tmp_path, chunks):
    kernel = ProductKernel(KERNEL, with_plans(KERNEL, tmp_path), {"ROW_CHUNKS": chunks})
    product = Product.random(96, 192, 384, seed=3)
    product.agrees(kernel.multiply(product, copies=True))


def test_a_nan_reaches_its_row_and_no_other(kernel):
    product = Product.random(32, 64, 256, seed=4)
    product.a[5, 200] = 0x7F
    got = kernel.multiply(product, copies=True)
    assert np.isnan(got[5]).all()
    assert np.isfinite(np.delete(got, 5, 0)).all()


def test_no_bank_is_used_twice(kernel):
    for plan in kernel.plans(1, 2):
        room = (160 + 192) * 384
        assert kernel.conflicts({"m": 160, "n": 192, "k": 384}, plan=plan, workspace_bytes=room) == [], plan


def test_sizes_outside_the_abi_and_small_workspaces_are_declined(kernel):
    for size in ((48, 64, 128), (32, 96, 128), (32, 64, 192), (0, 64, 128)):
        assert kernel.declines(*size, 1 << 30) == -1
    room = (32 * 128 if kernel.copies == 2 else 0) + 64 * 128   # both, or the larger
    assert kernel.declines(32, 64, 128, room - 1, workspace=16) == -2
    assert kernel.declines(32, 64, 128, room) == -2


FAULTS = {
    "order of K": Fault(
        "gemm/transpose_bytes.h", ", kNext[4] = {0, 1, kPaired ? 8 : 2, kPaired ? 9 : 3};",
        ";\n    const int kNext[4] = {0, 1, kPaired && !FAULT ? 8 : 2, kPaired && !FAULT ? 9 : 3};"),
    "order of rows": Fault(
        "gemm/*.h", "row_step<Shape>", "(FAULT ? 8 : row_step<Shape>)", "uninitialised", 5),
    "swizzle": Fault("gemm/*.h", "(chunk ^ lane % 8)", "(FAULT ? chunk : chunk ^ lane % 8)"),
    "way out": Fault("gemm/*.h", "who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4)",
                     "(FAULT ? who.lane % 16 : who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4))"),
    "turned way out": Fault(
        "gemm/*.h", "Bf16::pack(sums.total[0][i + next], sums.total[0][i + next + 2]);",
        "Bf16::pack(sums.total[0][i + next + 2 * FAULT], sums.total[0][i + next + 2 * !FAULT]);"),
}


def planted(root):
    with_table(root, KERNEL, "RowsInPlace", "WgmmaTable<MnMajorRows<SplitK<2, 64, 1, 1>>, MnMajorRows<Persistent<64>>, "
               "WeightRows<64, kClusterReduce>, WeightRows<64, kTmaStore>>")
    kernel = ProductKernel(KERNEL, with_plans(KERNEL, root), {"COPIES": 1})
    product = Product.random(128, 128, 256, seed=8)

    def every_instance(_fault):
        for shape in range(kernel.shapes):
            product.agrees(kernel.multiply(product, (shape, 1), copies=True))

    return kernel, every_instance


def test_faults_are_noticed(tmp_path):
    """A check of the checks: rows or K in another order than the other half of the kernel takes them to be."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
