# SPDX-License-Identifier: MIT
"""The Hopper FP8 product as ptxas makes it: no spills, products left asynchronous, TMA in both directions."""

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


BUILDS = [("fp8_gemm", ()), ("amd_fp8_mm", ()), ("amd_fp8_mm", ("-DCOPIES=1",))]


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: "".join((build[0], *build[1])))
def built(request, tmp_path_factory):
    """(ptxas log, library)"""
    library = tmp_path_factory.mktemp("built") / "kernel.so"
    root = compiled.ROOT
    problem, defines = request.param
    command = [
        compiled.NVCC, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
        "-Xcompiler", "-fPIC", "-shared", "-cudart", "static", "-gencode", compiled.GENCODE["sm_90a"], *defines,
        *(f"-I{root / path}" for path in (f"problems/{problem}", "kernels/cuda", "kernels/common")),
        str(root / f"kernels/cuda/{problem}/wgmma_tma.cu"), "-o", str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, library


def test_nothing_spills_and_nothing_is_serialised(built):
    log, _ = built
    reports = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) >= 6
    assert set(reports) == {("0", "0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


@pytest.mark.skipif(compiled.CUOBJDUMP is None, reason="no cuobjdump: not in $CUOBJDUMP, on the path or in a wheel")
def test_every_instance_multiplies_by_wgmma_and_loads_by_tma(built):
    command = [compiled.CUOBJDUMP, "-sass", str(built[1])]
    sass = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    bodies = [body for body in re.split(r"Function : ", sass)[1:] if "wgmma_gemm" in body.split("\n", 1)[0]]
    assert len(bodies) >= 6
    for body in bodies:
        assert re.search(r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3", body)
        assert "UTMALDG.2D" in body
        assert "LDL" not in body
    assert any("UTMALDG.2D.MULTICAST" in body for body in bodies)
    assert any("UTMASTG.2D" in body for body in bodies)
