# SPDX-License-Identifier: MIT
"""The Hopper attention from e4m3 as ptxas makes it: no spills in loops, products asynchronous, on FP8 tensor cores."""

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
    """(ptxas log, library), of one head dimension: the others differ in numbers only."""
    library = tmp_path_factory.mktemp("built") / "kernel.so"
    root = compiled.ROOT
    command = [
        compiled.NVCC, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-DONLY_DIM=128",
        "-Xcompiler", "-fPIC", "-shared", "-cudart", "static", "-gencode", compiled.GENCODE["sm_90a"],
        *(f"-I{root / path}" for path in ("problems/flash_attention_fp8", "kernels/cuda", "kernels/common")),
        str(root / "kernels/cuda/flash_attention_fp8/wgmma_tma.cu"), "-o", str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, library


def test_hardly_anything_spills_and_nothing_is_serialised(built):
    """Two addresses, which stay from tile to tile, may."""
    log, _ = built
    reports = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) >= 5
    assert max(int(number) for report in reports for number in report) <= 8
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


@pytest.mark.skipif(compiled.CUOBJDUMP is None, reason="no cuobjdump: not in $CUOBJDUMP, on the path or in a wheel")
def test_every_instance_multiplies_by_wgmma_and_hides_the_softmax(built):
    command = [compiled.CUOBJDUMP, "-sass", str(built[1])]
    sass = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    bodies = [body for body in re.split(r"Function : ", sass)[1:] if "wgmma_flash" in body.split("\n", 1)[0]]
    assert len(bodies) >= 5
    for body in bodies:
        assert re.search(r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3", body)
        assert "UTMALDG.5D" in body
        # The loop: scores have come, the last output has not. Exponentials must stand before the wait for the latter.
        _, _, loop = body.partition("WARPGROUP.DEPBAR.LE gsb0, 0x1")
        between, _, _ = loop.partition("WARPGROUP.DEPBAR.LE gsb0, 0x0")
        assert between.count("MUFU.EX2") >= 64   # 64 x 128 scores or more
        assert "LDL" not in between
