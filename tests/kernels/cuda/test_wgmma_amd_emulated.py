# SPDX-License-Identifier: MIT
"""amd_fp8_mm/wgmma_tma is right on the host: one operand or both transposed, then the Hopper product."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

_spec = importlib.util.spec_from_file_location("gemm_emulation", Path(__file__).with_name("gemm_emulation.py"))
gemm = importlib.util.module_from_spec(_spec)
sys.modules["gemm_emulation"] = gemm
_spec.loader.exec_module(gemm)


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


@pytest.mark.parametrize(
    ("line", "damaged"),
    [
        ("kPaired ? 8 : 2, kPaired ? 9 : 3", "2, 3"),
        ("Shape::kRowsOutermost ? 1 : 8;", "8;"),
        ("(chunk ^ lane % 8)", "chunk"),
        ("who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4)", "who.lane % 16"),
        ("Bf16::pack(sums.total[0][i + next], sums.total[0][i + next + 2]);",
         "Bf16::pack(sums.total[0][i + next + 2], sums.total[0][i + next]);"),
    ],
    ids=["order of K", "order of rows", "swizzle", "way out", "turned way out"],
)
def test_the_emulation_notices_damage(tmp_path, line, damaged):
    """A check of the checks: rows or K in another order than the other half of the kernel takes them to be."""
    shutil.copytree(gemm.ROOT / "kernels", tmp_path / "kernels")
    hits = 0
    for header in (tmp_path / "kernels/cuda/tile").glob("*.h"):
        text = header.read_text()
        hits += text.count(line)
        header.write_text(text.replace(line, damaged))
    assert hits == 1
    flags = ("-DCOPIES=1",)
    kernel = gemm.Emulated("amd_fp8_mm", tmp_path, variant="wgmma_tma", kernels=tmp_path / "kernels", flags=flags)
    product = gemm.Product.random(128, 128, 256, seed=8)

    def every_instance() -> None:
        for shape in range(kernel.shapes):
            agrees(product, kernel.run(product, (shape, 1), copies=True))

    with pytest.raises((AssertionError, RuntimeWarning)):   # wrong numbers, banks that clash, or elements never written
        every_instance()
