# SPDX-License-Identifier: MIT
"""mla_decode_fp8 on mma.sync: right when run on the host thread by thread, and without spills as ptxas makes it."""

from __future__ import annotations

import re

import pytest
import torch

from tests.kernels.cuda import faults
from tests.kernels.cuda.built import bodies, built, spills
from tests.kernels.cuda.faults import Fault
from tests.kernels.cuda.host_kernel import BACKWARD, FORWARD, HostKernel, emulated
from tests.kernels.cuda.latent_cases import case, check_late_scale, name

KERNEL = "mla_decode_fp8/mma_sync"


@pytest.fixture(scope="module")
def mla(tmp_path_factory):
    return HostKernel(KERNEL, tmp_path_factory.mktemp("emulated"), arch=89)


@emulated
@pytest.mark.parametrize("size", [
    case(1, 16, 1),
    case(1, 16, 740),                        # every slot several times, NaN behind the last token
    case(4, 16, 130, "mixed"),               # lengths 0, 1, page edges
    case(3, 16, 100, "mixed", 2, 1),         # 32 rows; a query that sees no token
    case(2, 64, 200, "ragged"),
], ids=name)
def test_it_matches_the_reference(mla, size):
    for eager in (False, True):
        mla.check(size, eager=eager, order=BACKWARD if eager else FORWARD)


@emulated
@pytest.mark.parametrize(("size", "processors"), [
    (case(4, 16, 700, "mixed"), 8),          # chunks cut requests, an empty one among them
    (case(34, 16, 40, "mixed"), 4),          # chunks of many requests, more than a warp has lanes
    (case(1, 128, 300), 12),                 # several row tiles per group
], ids=name)
def test_it_cuts_the_line_of_tokens(mla, size, processors):
    part = size["sq"] * size["hq"] * 513 * 4
    mla.check(size, processors=processors, workspace_bytes=(size["batch"] + 2 * processors) * part)
    assert mla.used_workspace


@emulated
def test_pages_are_read_ahead_in_order(mla):
    mla.check(case(1, 16, 64 * 66 + 1))      # more than the page numbers of two reads


@emulated
def test_scales_of_any_size(mla):
    check_late_scale(mla, 16)


@emulated
def test_it_gives_the_same_bits_however_copies_are_timed(mla):
    size = case(2, 16, 260, "ragged")
    data = mla.reference.generate_input(**size, seed=5, device="cpu")
    late, early = (mla.run(size, data, eager=eager) for eager in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(late, early, strict=True))


@emulated
def test_steep_scores(mla):
    """Beyond the range of fp32's exponentials, with maxima that jump between steps."""
    mla.check(case(2, 64, 500) | {"steep": 1})


FAULTS = {
    "a slot is read before it has landed": Fault("mla/fp8_mma_sync_scores.h", "cp_async_wait<kAhead - 1>();"),
    "NaN behind the length": Fault("mla/fp8_mma_sync_scores.h", "i < valid);", "FAULT || i < valid);"),
    "the reference changes, what was accumulated does not": Fault(
        "mla/fp8_mma_sync.h", "scores.change = before / reference;"),
}


def planted(kernels, folder):
    kernel = HostKernel(KERNEL, folder, kernels=kernels, arch=89)

    def check(_fault):
        check_late_scale(kernel, 16)
        for tokens in (90, 700):
            for eager in (False, True):
                kernel.check(case(1, 16, tokens), eager=eager)

    return kernel.library, check


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return faults.outcomes(tmp_path_factory.mktemp("faults"), FAULTS, planted)


@emulated
@pytest.mark.parametrize("fault", [faults.NONE, *FAULTS])
def test_the_emulation_notices(outcomes, fault):
    """A check of the checks: each fault gives a wrong result or a deadlock."""
    assert outcomes[fault] == ("passed" if fault == faults.NONE else "refused")


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
