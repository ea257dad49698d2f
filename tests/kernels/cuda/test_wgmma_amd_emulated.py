# SPDX-License-Identifier: MIT
"""amd_fp8_mm/wgmma_tma is right on the host: one operand or both transposed, then the Hopper product."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.kernels.cuda import faults
from tests.kernels.cuda import gemm_emulation as gemm
from tests.kernels.cuda.faults import Fault

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


@pytest.fixture(scope="module", params=[1, 2], ids=["one copied", "both copied"])
def kernel(request, tmp_path_factory):
    flags = (f"-DCOPIES={request.param}",)
    made = gemm.Emulated("amd_fp8_mm", tmp_path_factory.mktemp("emulated"), variant="wgmma_tma", flags=flags)
    made.copies = request.param
    return made


def agrees(product, got) -> None:
    value, bound = product.expected()
    wrong = ~(np.abs(got - value) <= bound)
    assert not wrong.any(), f"{wrong.sum()} wrong, first at {np.argwhere(wrong)[0]}"


@pytest.mark.parametrize("eager", [False, True])
def test_every_instance_with_tails(kernel, eager):
    product = gemm.Product.random(160, 192, 384, seed=1)
    for shape in range(kernel.shapes):
        for splits in (1, 2):
            if kernel.runs(shape, splits):
                agrees(product, kernel.run(product, (shape, splits), eager=eager, copies=True))


def test_rings_wrap_and_blocks_walk_several_tiles(kernel):
    product = gemm.Product.random(320, 576, 128 * 7, seed=9)
    for shape in range(kernel.shapes):
        for splits in (1, 3):
            if kernel.runs(shape, splits):
                agrees(product, kernel.run(product, (shape, splits), copies=True))


@pytest.mark.parametrize("size", [(32, 64, 128), (32, 320, 256), (96, 64, 640), (288, 448, 1152)])
def test_sizes_that_leave_tiles_of_the_transposition_unfilled(kernel, size):
    product = gemm.Product.random(*size, seed=2)
    agrees(product, kernel.run(product, copies=True))


@pytest.mark.parametrize("chunks", [2, 8])
def test_every_shape_of_the_transposition(tmp_path, chunks):
    kernel = gemm.Emulated("amd_fp8_mm", tmp_path, variant="wgmma_tma", flags=(f"-DROW_CHUNKS={chunks}",))
    product = gemm.Product.random(96, 192, 384, seed=3)
    agrees(product, kernel.run(product, copies=True))


def test_a_nan_reaches_its_row_and_no_other(kernel):
    product = gemm.Product.random(32, 64, 256, seed=4)
    product.a[5, 200] = 0x7F
    got = kernel.run(product, copies=True)
    assert np.isnan(got[5]).all()
    assert np.isfinite(np.delete(got, 5, 0)).all()


def test_sizes_outside_the_abi_and_small_workspaces_are_declined(kernel):
    pointer = 16   # never followed
    for size in ((48, 64, 128), (32, 96, 128), (32, 64, 192), (0, 64, 128)):
        assert kernel.symbol(*[pointer] * 5, *size, None, 1 << 30, None) == -1
    room = (32 * 128 if kernel.copies == 2 else 0) + 64 * 128   # both, or the larger
    assert kernel.symbol(*[pointer] * 5, 32, 64, 128, pointer, room - 1, None) == -2
    assert kernel.symbol(*[pointer] * 5, 32, 64, 128, None, room, None) == -2


FAULTS = {
    "order of K": Fault(
        "tile/*.h", ", kNext[4] = {0, 1, kPaired ? 8 : 2, kPaired ? 9 : 3};",
        ";\n    const int kNext[4] = {0, 1, kPaired && !FAULT ? 8 : 2, kPaired && !FAULT ? 9 : 3};"),
    "order of rows": Fault(
        "tile/*.h", "constexpr int row_step = Shape::kRowsOutermost ? 1 : 8;",
        "struct RowStep { operator int() const { return Shape::kRowsOutermost && !FAULT ? 1 : 8; } };\n"
        "template <class Shape>\nconstexpr RowStep<Shape> row_step;"),
    "swizzle": Fault("tile/*.h", "(chunk ^ lane % 8)", "(FAULT ? chunk : chunk ^ lane % 8)"),
    "way out": Fault("tile/*.h", "who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4)",
                     "(FAULT ? who.lane % 16 : who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4))"),
    "turned way out": Fault(
        "tile/*.h", "Bf16::pack(sums.total[0][i + next], sums.total[0][i + next + 2]);",
        "Bf16::pack(sums.total[0][i + next + 2 * FAULT], sums.total[0][i + next + 2 * !FAULT]);"),
}


def planted(kernels, folder):
    kernel = gemm.Emulated(
        "amd_fp8_mm", folder, variant="wgmma_tma", kernels=kernels, flags=("-DCOPIES=1", "-Og"))   # built sooner
    product = gemm.Product.random(128, 128, 256, seed=8)

    def every_instance(_fault):
        for shape in range(kernel.shapes):
            try:
                agrees(product, kernel.run(product, (shape, 1), copies=True))
            except RuntimeWarning as warning:         # elements that were never written
                raise AssertionError from warning

    return kernel.library, every_instance


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return faults.outcomes(tmp_path_factory.mktemp("faults"), FAULTS, planted)


@pytest.mark.parametrize("fault", [faults.NONE, *FAULTS])
def test_the_emulation_notices_damage(outcomes, fault):
    """A check of the checks: rows or K in another order than the other half of the kernel takes them to be."""
    assert outcomes[fault] == ("passed" if fault == faults.NONE else "refused")
