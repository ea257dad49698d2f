# SPDX-License-Identifier: MIT
"""The Hopper FP8 product as ptxas makes it: no spills, products left asynchronous, TMA in both directions."""

from __future__ import annotations

import re

import pytest

from backends.machine.document import mix
from tests.kernels.cuda.built import built, functions, has, spills

pytestmark = pytest.mark.toolchain


BUILDS = [("fp8_gemm/wgmma_tma", {}), ("amd_fp8_mm/wgmma_tma", {}), ("amd_fp8_mm/wgmma_tma", {"COPIES": 1})]


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: build[0] + ",".join(build[1]))
def made(request):
    """(ptxas log, library)"""
    kernel, defines = request.param
    return built(kernel, **defines)


def test_nothing_spills_and_nothing_is_serialised(made):
    log, _ = made
    reports = spills(log)
    assert len(reports) >= 6
    assert set(reports) == {("0", "0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_every_instance_multiplies_by_wgmma_and_loads_by_tma(made):
    found = functions(made[1], "wgmma_gemm")
    assert len(found) >= 6
    for function in found:
        assert has(function, r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3")
        assert has(function, r"UTMALDG\.2D")
        assert "local" not in mix(function.code)
    assert any(has(function, r"UTMALDG\.2D\.MULTICAST") for function in found)
    assert any(has(function, r"UTMASTG\.2D") for function in found)
