# SPDX-License-Identifier: MIT
"""benchmarks/tools/check_packed.py: what it makes of compute-sanitizer's words, and which cases it takes."""

from __future__ import annotations

import sys
from argparse import Namespace

import pytest
import torch

from tests.submissions.conftest import ROOT

SAID = """\
========= COMPUTE-SANITIZER
========= Warpgroup MMA sequence error detected. Mismatching warpgroup instruction pc between warps.
=========     at void wgmma_wait<(int)0>()+0xc760 in cuda.cu:3089
=========     by thread (224,0,0) in block (13,0,0)
=========         Device Frame: void wgmma_wait_alone<(int)0>()+0xc760 in cuda.cu:3095
=========         Device Frame: void latent_wgmma()+0x9dc0 in cuda.cu:4001
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: _launch [0x2a4] in latent.so
=========
called
========= Warpgroup MMA sequence error detected. Mismatching warpgroup instruction pc between warps.
=========     at void wgmma_wait<(int)0>()+0xd120 in cuda.cu:3089
=========     by thread (160,0,0) in block (40,0,0)
=========         Device Frame: void wgmma_wait_alone<(int)0>()+0xd120 in cuda.cu:3095
=========         Device Frame: void latent_wgmma()+0x9dc0 in cuda.cu:4001
=========
========= Barrier error detected. Divergent thread(s) in block.
=========     at named_barrier_sync(int, int)+0x6540 in cuda.cu:1025
=========     by thread (192,0,0) in block (4,0,0)
=========
========= Error: Race reported between Write access at bulk_load()+0x15f0 in cuda.cu:426
=========     and Read access at pair()+0x6740 in cuda.cu:1567 [7936 hazards]
=========     and Read access at pair()+0x6780 in cuda.cu:1567 [7936 hazards]
=========
========= ERROR SUMMARY: 3 errors
right
"""


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "benchmarks/tools"))
    try:
        import check_packed
    finally:
        sys.path.pop(0)
    return check_packed


def test_reports_that_differ_in_their_place_alone_are_one_kind(script):
    wait, barrier, race = script.kinds(SAID)
    assert wait == (
        "2 × Warpgroup MMA sequence error detected. Mismatching warpgroup instruction pc between warps. "
        "at void wgmma_wait<(int)0>() in cuda.cu:3089 Device Frame: void wgmma_wait_alone<(int)0>() in cuda.cu:3095 "
        "Device Frame: void latent_wgmma() in cuda.cu:4001")
    assert barrier == (
        "1 × Barrier error detected. Divergent thread(s) in block. at named_barrier_sync(int, int) in cuda.cu:1025")
    assert race.startswith("1 × Error: Race reported between Write access at bulk_load() in cuda.cu:426 and Read")
    assert "hazards" not in race


def test_a_clean_run_says_nothing(script):
    assert script.kinds("========= COMPUTE-SANITIZER\nright\n========= ERROR SUMMARY: 0 errors\n") == []


def test_cases_are_chosen_by_name_before_they_are_thinned_out(script):
    cases = [{"batch": batch, "hq": hq, "seed": 1} for batch in (1, 2, 3) for hq in (16, 128)]
    assert script.chosen(cases, Namespace(case=["batch=2,*", "*hq=128"], cases=9)) == [cases[i] for i in (1, 2, 3, 5)]
    assert script.chosen(cases, Namespace(case=["*hq=128"], cases=2)) == [cases[1], cases[5]]
    assert script.chosen(cases, Namespace(case=None, cases=2)) == [cases[0], cases[5]]


def test_cases_that_nothing_matches_are_no_success(script, tmp_path, capsys):
    (tmp_path / "submission.py").write_text("")
    options = Namespace(case=["batch=7*"], cases=4, tools="synccheck")
    assert script.sanitize({"fp8_gemm/wgmma_tma": tmp_path}, options) == 1
    assert "matches ['batch=7*']" in capsys.readouterr().out


def test_answers_are_compared_as_bytes(script):
    nan = torch.full((2,), float("nan"))
    for answer in (nan, (nan, torch.ones(2))):
        assert all(map(torch.equal, script.answer_bits(answer), script.answer_bits(answer)))
    assert not torch.equal(script.answer_bits(torch.zeros(1))[0], script.answer_bits(torch.zeros(1).neg())[0])
