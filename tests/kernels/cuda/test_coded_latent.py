# SPDX-License-Identifier: MIT
"""mla_decode_fp8 on mma.sync: right on an emulated L4, and without spills as ptxas makes it."""

from __future__ import annotations

import re

import pytest

from tests.kernels.cuda import planting
from tests.kernels.cuda.built import bodies, built, spills
from tests.kernels.cuda.emulated import EmulatedKernel
from tests.kernels.cuda.latent_cases import case, check_late_scale, name
from tests.kernels.cuda.planting import Fault

KERNEL = "mla_decode_fp8/mma_sync"


@pytest.fixture(scope="module")
def mla():
    return EmulatedKernel(KERNEL, arch="sm_89")


@pytest.mark.parametrize("size", [
    case(1, 16, 1),
    case(1, 16, 740),                        # every slot several times, NaN behind the last token
    case(4, 16, 130, "mixed"),               # lengths 0, 1, page edges
    case(3, 16, 100, "mixed", 2, 1),         # 32 rows; a query that sees no token
    case(2, 64, 200, "ragged"),
], ids=name)
def test_it_matches_the_reference(mla, size):
    for schedule in ("late", "eager"):
        mla.check(size, schedule=schedule)


@pytest.mark.parametrize(("size", "processors"), [
    (case(4, 16, 700, "mixed"), 8),          # chunks cut requests, an empty one among them
    (case(34, 16, 40, "mixed"), 4),          # chunks of many requests, more than a warp has lanes
    (case(1, 128, 300), 12),                 # several row tiles per group
], ids=name)
def test_it_cuts_the_line_of_tokens(mla, size, processors):
    part = size["sq"] * size["hq"] * 513 * 4
    mla.check(size, multiprocessors=processors, workspace_bytes=(size["batch"] + 2 * processors) * part)
    assert mla.used_workspace


def test_pages_are_read_ahead_in_order(mla):
    mla.check(case(1, 16, 64 * 66 + 1))      # more than the page numbers of two reads


def test_scales_of_any_size(mla):
    check_late_scale(mla, 16)


def test_it_gives_the_same_bits_however_copies_are_timed(mla):
    mla.same_in_every_schedule(case(2, 16, 260, "ragged"))


def test_steep_scores(mla):
    """Beyond the range of fp32's exponentials, with maxima that jump between steps."""
    mla.check(case(2, 64, 500) | {"steep": 1})


FAULTS = {
    "a slot is read before it has landed": Fault(
        "mla/fp8_mma_sync_scores.h", "cp_async_wait<kAhead - 1>();", shows="shared-race"),
    "NaN behind the length": Fault("mla/fp8_mma_sync_scores.h", "i < valid);", "FAULT || i < valid);"),
    "the reference changes, what was accumulated does not": Fault(
        "mla/fp8_mma_sync.h", "scores.change = before / reference;"),
}


def planted(root):
    kernel = EmulatedKernel(KERNEL, arch="sm_89", root=root)

    def check(_fault):
        check_late_scale(kernel, 16)
        for tokens in (90, 700):
            kernel.check(case(1, 16, tokens))

    return kernel, check


def test_faults_are_noticed(tmp_path):
    """A check of the checks."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built(KERNEL, "sm_89")


class TestCompiled:
    pytestmark = pytest.mark.toolchain

    def test_nothing_spills(self, made):
        reports = spills(made[0])
        assert len(reports) >= 4
        assert set(reports) == {("0", "0", "0")}
        assert not [line for line in made[0].splitlines() if re.search(r"\b(warning|error)\b", line)]

    def test_codes_are_converted_in_pairs_and_multiplied_as_fp16(self, made):
        found = bodies(made[1], "fp8_latent")
        assert len(found) >= 2
        for body in found:
            assert "F2FP.F16.E4M3.UNPACK_B" in body
            assert "HMMA.16816.F32" in body
            assert "HMMA.16816.F32.BF16" in body     # rotary columns
            assert "LDSM.16.MT88.4" in body          # values
            assert "LDGSTS.E.BYPASS.128" in body
