# SPDX-License-Identifier: MIT
"""The Hopper attention backward as ptxas makes it: no spills, products left asynchronous, dQ added by TMA."""

from __future__ import annotations

import re

import pytest

from backends.machine.document import mix
from backends.machine.loops import loops
from tests.kernels.cuda.built import built, functions, has, views

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("flash_attention_bwd/wgmma_tma")


def test_nothing_spills_and_nothing_is_serialised(made):
    """208 registers hold dK, dV and one step's weights only just: ptxas serialises all products when they do not."""
    log, _ = made
    reports = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) >= 18
    assert set(reports) == {("0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_every_instance_multiplies_by_wgmma_and_adds_by_tma(made):
    found = functions(made[1], "wgmma_flash_backward")
    assert len(found) >= 6
    for function in found:
        assert has(function, r"HGMMA\.64x\d+x16\.F32")
        assert any(".tnspB" in each.text for each in function.code)
        assert has(function, r"UTMALDG\.5D")
        assert has(function, "UBLKRED")      # cp.reduce.async.bulk
        assert has(function, r"STSM\.16\.MT88\.4")
        assert "local" not in mix(function.code)
        for loop in loops(function.code):    # threads add dk and dv where tiles come in parts: behind the steps
            adds = any(re.match(r"REDG\.E\.ADD\.F32", each.opcode) for each in loop.code)
            assert not (loop.innermost and adds), "a step adds dQ itself"


def test_exponentials_stand_before_the_wait_for_dk(made):
    """ptxas may move them behind it, and dK's product then has nothing beside it: 3 % slower."""
    for function in functions(made[1], "wgmma_flash_backward"):
        with_softmax = [view for view in views(function) if view.exponentials]
        assert len(with_softmax) >= 2
        for view in with_softmax:
            assert view.beside == view.exponentials
            # scores have come, dP has not: all exponentials of a step stand between its issue and its wait
            assert (0, view.exponentials) in view.waits


def test_at_256_dq_has_its_first_operand_in_registers(made):
    """Shared memory is what a step waits for there: dS is read once, not with each product of dQ."""
    for function in functions(made[1], "wgmma_flash_backward"):
        by_pieces = [each for each in function.code if each.opcode.startswith("HGMMA.64x32x16")]
        assert all(re.match(r"R\d+, R\d+, gdesc", each.text.split(None, 1)[1]) for each in by_pieces)
        assert bool(by_pieces) == has(function, r"LDSM\.16\.M88\.4") == ("Li256E" in function.mangled)
