# SPDX-License-Identifier: MIT
"""The Hopper attention forward as ptxas makes it: no spills, products left asynchronous, softmax beside them."""

from __future__ import annotations

import re

import pytest

from backends.machine.document import mix
from tests.kernels.cuda.built import built, functions, has, spills, views

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module", params=[("flash_attention", 26), ("flash_attention_varlen", 12)], ids=lambda p: p[0])
def made(request):
    """(ptxas log, library, how many instances)"""
    problem, instances = request.param
    return *built(f"{problem}/wgmma_tma"), instances


def test_nothing_spills_and_nothing_is_serialised(made):
    log, _, instances = made
    reports = spills(log)
    assert len(reports) >= instances + 10      # mma_sync's tiles for few queries, merges
    assert set(reports) == {("0", "0", "0")}
    assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]


def test_every_instance_multiplies_by_wgmma_and_hides_the_softmax(made):
    found = functions(made[1], "wgmma_flash")
    assert len(found) == made[2]
    for function in found:
        assert has(function, r"HGMMA\.64x\d+x16\.F32")
        assert any(".tnspB" in each.text for each in function.code)
        assert has(function, r"UTMALDG\.5D")
        assert "local" not in mix(function.code)
        # The loop: scores have come, the last output has not. Half of the exponentials stand before its wait,
        # fewer where probabilities are stored behind it.
        hidden = [count for view in views(function) for limit, count in view.waits if limit == 0 and count]
        assert hidden
        assert min(hidden) >= (8 if has(function, "STSM") else 16)   # of 64 x 64 scores or more


def test_an_output_is_stored_before_the_next_scores_are_waited_for(made):
    """Causal tiles at head_dim 256. ptxas moves that wait to the front where nothing stands in its way."""
    soon = 0
    for function in functions(made[1], "wgmma_flash"):
        body = "\n".join(each.text for each in function.code)
        _, *waits = body.split("WARPGROUP.DEPBAR.LE gsb0, 0x1")
        if len(waits) == 2:
            soon += 1
            between, _, _ = waits[1].partition("WARPGROUP.DEPBAR.LE gsb0, 0x0")
            assert between.count("STG.E.128") == 16      # 256 columns of two rows
    assert soon == (4 if made[2] == 12 else 2)      # bf16 and fp16, packed sequences of any length
