# SPDX-License-Identifier: MIT
"""Hopper's MLA decode as ptxas makes it: no spills, products left asynchronous, pages loaded by TMA."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

import backends
from backends.cuda import ptx_command
from backends.errors import ToolchainMissing
from backends.machine.document import mix
from backends.source import KernelSource
from tests.kernels.cuda.built import ROOT, built, functions, has, spills

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("mla_decode/wgmma_tma")


def test_nothing_spills_and_nothing_is_serialised(made):
    log, _ = made
    reports = spills(log)
    assert len(reports) >= 4
    assert set(reports) == {("0", "0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_products_are_wgmma_on_one_tile_and_pages_come_by_tma(made):
    found = functions(made[1], "latent_wgmma")
    assert len(found) >= 2
    for function in found:
        assert has(function, r"HGMMA\.64x64x16\.F32\.BF16")
        # values: the keys' tile, transposed
        assert any(re.match(r"HGMMA\.64x256x16\.F32\.BF16 .*tnspB", each.text) for each in function.code)
        assert has(function, r"UTMALDG\.2D")
        assert has(function, r"UTMALDG\.3D")
        assert "local" not in mix(function.code)


def test_operands_of_few_rows_are_uniform(made):
    """Products' operands come by additions in uniform registers.

    What stands in front of the loop decides whether the compiler sees that warps stay whole. Where it does not, it
    moves each operand to uniform registers by itself, and a page takes a third more instructions.
    """
    found = functions(made[1], "latent_small_m")
    assert len(found) == 2
    for function in found:
        products = [at for at, each in enumerate(function.code) if each.base == "HGMMA"]
        assert sum(each.base == "R2UR" for each in function.code[products[0]:products[-1]]) < 20


def test_the_copy_with_stamps_compiles(tmp_path, monkeypatch):
    """benchmarks/tools/mla_stamps.py puts lines into the kernel's sources, which change."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/tools"))
    try:
        import mla_stamps
    finally:
        sys.modules.pop("mla_stamps", None)
    mla_stamps.patch(tmp_path / "kernels")
    shutil.copytree(ROOT / "problems/mla_decode", tmp_path / "problems/mla_decode")
    backend = backends.get("cuda")
    source = KernelSource.read(tmp_path / "kernels/cuda/mla_decode/wgmma_tma.cu", tmp_path)
    ptx = tmp_path / "kernel.ptx"
    try:
        command = ptx_command(backend.command(source, tmp_path / "kernel.so", backend.target("sm_90a"), {}), ptx)
    except ToolchainMissing as error:
        pytest.skip(str(error))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "stamps_of" in ptx.read_text()
