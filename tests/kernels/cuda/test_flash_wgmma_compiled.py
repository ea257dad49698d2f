# SPDX-License-Identifier: MIT
"""The Hopper attention forward as ptxas makes it: no spills, products left asynchronous, softmax beside them."""

from __future__ import annotations

import re

import pytest

from tests.kernels.cuda.built import bodies, built, spills

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("flash_attention/wgmma_tma")


def test_nothing_spills_and_nothing_is_serialised(made):
    log, _ = made
    reports = spills(log)
    assert len(reports) >= 28
    assert set(reports) == {("0", "0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_every_instance_multiplies_by_wgmma_and_hides_the_softmax(made):
    functions = bodies(made[1], "wgmma_flash")
    assert len(functions) >= 18
    for body in functions:
        assert re.search(r"HGMMA\.64x\d+x16\.F32", body)
        assert ".tnspB" in body
        assert "UTMALDG.5D" in body
        assert "LDL" not in body
        # The loop: scores have come, the last output has not. Half of the exponentials stand before its wait,
        # fewer where probabilities are stored behind it.
        _, _, loop = body.partition("WARPGROUP.DEPBAR.LE gsb0, 0x1")
        between, _, _ = loop.partition("WARPGROUP.DEPBAR.LE gsb0, 0x0")
        assert between.count("MUFU.EX2") >= (12 if "STSM" in body else 16)   # of 64 x 64 scores or more
