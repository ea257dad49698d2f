# SPDX-License-Identifier: MIT
"""The Hopper attention from e4m3 as ptxas makes it: no spills in loops, products asynchronous, on FP8 tensor cores."""

from __future__ import annotations

import re

import pytest

from backends.machine.loops import loops
from tests.kernels.cuda.built import built, functions, has, spills, views

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("flash_attention_fp8/wgmma_tma", ONLY_DIM=128)


def test_hardly_anything_spills_and_nothing_is_serialised(made):
    """Two addresses, which stay from tile to tile, may; the loop over keys reads none of them."""
    log, library = made
    reports = spills(log)
    assert len(reports) >= 4
    assert max(int(number) for stack, stores, _loads in reports for number in (stack, stores)) <= 8
    for function in functions(library, "wgmma_flash"):
        multiplying = [loop.code for loop in loops(function.code) if any("QGMMA" in each.text for each in loop.code)]
        text = "\n".join(each.text for each in min(multiplying, key=len))
        assert not re.search(r"\b(LDL|STL)\b", text)
        assert "R2UR" not in text, "products wait for their operands' addresses to become uniform"
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_every_instance_multiplies_by_wgmma_and_hides_the_softmax(made):
    found = functions(made[1], "wgmma_flash")
    assert len(found) >= 3
    for function in found:
        assert has(function, r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3")
        assert has(function, r"UTMALDG\.5D")
        # The loop: scores have come, the last output has not. Exponentials must stand before the wait for the latter.
        hidden = [count for view in views(function) for limit, count in view.waits if limit == 0 and count]
        assert hidden
        assert min(hidden) >= 64   # 64 x 128 scores or more
