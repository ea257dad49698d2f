# SPDX-License-Identifier: MIT
"""The Hopper attention backward as ptxas makes it: no spills, products left asynchronous, dQ added by TMA."""

from __future__ import annotations

import re

import pytest

from tests.kernels.cuda.built import bodies, built

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("flash_attention_bwd/wgmma_tma")


def test_nothing_spills_and_nothing_is_serialised(made):
    """208 registers hold dK, dV and one step's weights only just: ptxas serialises all products when they do not."""
    log, _ = made
    reports = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) >= 8
    assert set(reports) == {("0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_every_instance_multiplies_by_wgmma_and_adds_by_tma(made):
    functions = bodies(made[1], "wgmma_flash_backward")
    assert len(functions) >= 4
    for body in functions:
        assert re.search(r"HGMMA\.64x\d+x16\.F32", body)
        assert ".tnspB" in body
        assert "UTMALDG.5D" in body
        assert "UBLKRED" in body      # cp.reduce.async.bulk
        assert "STSM.16.MT88.4" in body
        assert "LDL" not in body
        assert "REDG.E.ADD.F32" not in body


def test_exponentials_stand_before_the_wait_for_dk(made):
    """ptxas may move them behind it, and dK's product then has nothing beside it: 3 % slower."""
    for body in bodies(made[1], "wgmma_flash_backward"):
        between = body.split("WARPGROUP.DEPBAR")
        behind = sum(part.count("MUFU.EX2") for part in between if "HGMMA" in part)
        assert behind <= body.count("MUFU.EX2") // 8
