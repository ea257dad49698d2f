# SPDX-License-Identifier: MIT
"""The Hopper attention backward as ptxas makes it: no spills, products left asynchronous, dQ added by TMA."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

_path = Path(__file__).with_name("test_attention_compiled.py")
_spec = importlib.util.spec_from_file_location("attention_compiled", _path)
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
        *(f"-I{root / path}" for path in ("problems/flash_attention_bwd", "kernels/cuda", "kernels/common")),
        str(root / "kernels/cuda/flash_attention_bwd/wgmma_tma.cu"), "-o", str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, library


def test_nothing_spills_and_nothing_is_serialised(built):
    """208 registers hold dK, dV and one step's weights only just: ptxas serialises all products when they do not."""
    log, _ = built
    reports = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) >= 8
    assert set(reports) == {("0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


@pytest.mark.skipif(compiled.CUOBJDUMP is None, reason="no cuobjdump: not in $CUOBJDUMP, on the path or in a wheel")
def test_every_instance_multiplies_by_wgmma_and_adds_by_tma(built):
    command = [compiled.CUOBJDUMP, "-sass", str(built[1])]
    sass = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    bodies = [body for body in re.split(r"Function : ", sass)[1:] if "wgmma_flash_backward" in body.split("\n", 1)[0]]
    assert len(bodies) >= 4
    for body in bodies:
        assert re.search(r"HGMMA\.64x\d+x16\.F32", body)
        assert ".tnspB" in body
        assert "UTMALDG.5D" in body
        assert "UBLKRED" in body      # cp.reduce.async.bulk
        assert "STSM.16.MT88.4" in body
        assert "LDL" not in body
        assert "REDG.E.ADD.F32" not in body
