# SPDX-License-Identifier: MIT
"""Hopper's MLA decode as ptxas makes it: no spills, products left asynchronous, pages loaded by TMA."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("gemm_compiled", Path(__file__).with_name("test_gemm_compiled.py"))
compiled = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compiled)

pytestmark = compiled.pytestmark


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(ptxas log, library)"""
    library = tmp_path_factory.mktemp("built") / "kernel.so"
    root = compiled.ROOT
    command = [
        compiled.NVCC, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
        "-Xcompiler", "-fPIC", "-shared", "-cudart", "static", "-gencode", compiled.GENCODE["sm_90a"],
        *(f"-I{root / path}" for path in ("problems/mla_decode", "kernels/cuda", "kernels/common")),
        str(root / "kernels/cuda/mla_decode/wgmma_tma.cu"), "-o", str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, library


def test_nothing_spills_and_nothing_is_serialised(built):
    log, _ = built
    reports = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) >= 4
    assert set(reports) == {("0", "0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


@pytest.mark.skipif(compiled.CUOBJDUMP is None, reason="no cuobjdump: not in $CUOBJDUMP, on the path or in a wheel")
def test_products_are_wgmma_on_one_tile_and_pages_come_by_tma(built):
    command = [compiled.CUOBJDUMP, "-sass", str(built[1])]
    sass = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    bodies = [body for body in re.split(r"Function : ", sass)[1:] if "latent_wgmma" in body.split("\n", 1)[0]]
    assert len(bodies) >= 2
    for body in bodies:
        assert "HGMMA.64x64x16.F32.BF16" in body
        assert re.search(r"HGMMA\.64x256x16\.F32\.BF16 .*tnspB", body)   # values: the keys' tile, transposed
        assert "UTMALDG.2D" in body
        assert not re.search(r"\b(LDL|STL)\b", body)
