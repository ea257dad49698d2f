# SPDX-License-Identifier: MIT
"""The Hopper attention from e4m3 computes the right thing, run on the host thread by thread with its barriers."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.kernels.cuda import faults
from tests.kernels.cuda.faults import Fault
from tests.kernels.cuda.flash_fp8_emulation import EmulatedFp8Flash

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    return EmulatedFp8Flash(tmp_path_factory.mktemp("emulated"), {})


def case(batch, sq, sk, hq, hk, dim, causal, scales, rotated=0, outliers=0):
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "scales": scales,
            "rotated": rotated, "outliers": outliers}


def name(value):
    return "-".join(map(str, value.values()))


@pytest.mark.parametrize(("size", "eager", "processors"), [
    (case(1, 200, 330, 2, 1, 64, 0, "head"), False, 1),           # tails on both sides; grouped heads
    (case(1, 200, 300, 1, 1, 64, 1, "head"), True, 1),            # bottom-right mask
    (case(1, 200, 260, 1, 1, 64, 1, "block", 1, 1), True, 1),
    (case(1, 130, 500, 2, 2, 128, 0, "tensor", 0, 1), True, 1),   # the rings wrap; two tiles per block
    (case(1, 130, 300, 1, 1, 128, 1, "head"), False, 1),
    (case(2, 129, 290, 1, 1, 128, 1, "block"), False, 2),         # behind the tail another batch lies
    (case(1, 130, 290, 1, 1, 256, 0, "head"), False, 1),
    (case(1, 129, 257, 1, 1, 256, 1, "block", 1, 1), True, 1),
    (case(1, 1, 1, 2, 1, 64, 0, "tensor"), False, 64),            # few queries: transposed in the block
    (case(1, 65, 150, 2, 1, 128, 1, "block"), True, 64),
    (case(1, 3, 170, 1, 1, 256, 0, "head"), False, 64),
], ids=lambda value: name(value) if isinstance(value, dict) else str(value))
def test_matches_the_reference(kernel, size, eager, processors):
    kernel.check(size, eager=eager, processors=processors)


def test_rows_without_keys_are_exact(kernel):
    size = case(1, 300, 20, 1, 1, 64, 1, "head")
    data = kernel.reference.generate_input(**size, seed=6, device="cpu")
    o, lse = kernel.run(size, data, processors=1)
    assert not o[:, :280].any()
    assert torch.isneginf(lse[..., :280]).all()
    assert torch.isfinite(lse[..., 280:]).all()


def test_scores_that_rise_are_corrected_and_negative_ones_compared(kernel):
    """Keys grow along the walk from the last to the first, so maxima rise; another head has negative scores only."""
    size = case(1, 66, 400, 2, 2, 64, 0, "head")
    q, k, v, *rest = kernel.reference.generate_input(**size, seed=7, device="cpu")
    wide = k.float() * torch.linspace(1, 0.05, size["sk"])[None, :, None, None]
    wide[:, :, 1] = wide[:, :, 1].abs()
    numbers = q.float()
    numbers[:, :, 1] = -numbers[:, :, 1].abs()
    data = (numbers.to(q.dtype), wide.to(k.dtype), v, *rest)
    passed, message = kernel.reference.check_implementation(data, tuple(kernel.run(size, data, processors=1)))
    assert passed, message


def test_causal_tiles_come_by_count_or_in_pairs(kernel):
    """Three blocks for eight tiles of different lengths; the count needs four bytes."""
    for count in (True, False):
        kernel.check(case(1, 520, 640, 2, 1, 128, 1, "head"), processors=3, count=count)


def test_without_a_workspace_nothing_is_transposed_before(kernel):
    for dim in (64, 256):
        kernel.check(case(1, 130, 200, 1, 1, dim, 1, "head"), processors=1, workspace=False)


def test_no_bank_is_used_twice(kernel):
    kernel.library.emulation_bank_conflicts()
    for dim in (64, 128, 256):
        kernel.check(case(1, 60, 150, 1, 1, dim, 0, "head"), processors=64)
    assert kernel.library.emulation_bank_conflicts() == 0


FAULTS = {
    "values empty": Fault(
        "tile/wgmma_flash_fp8.h", "mbarrier_wait(memory.values_empty(at.stage), at.parity ^ 1);", times=2),
    "scale of values": Fault("tile/wgmma_flash_fp8_softmax.h", "rows[half].sum += sums[half] * step.value_inverse;",
                             "rows[half].sum += sums[half];"),
}


def planted(kernels, folder):
    kernel = EmulatedFp8Flash(folder, {"ONLY_DIM": 64}, kernels)

    def check(_fault):
        for eager in (False, True):
            kernel.check(case(1, 200, 400, 1, 1, 64, 0, "block"), eager=eager, processors=1)

    return kernel.library, check


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return faults.outcomes(tmp_path_factory.mktemp("faults"), FAULTS, planted)


@pytest.mark.parametrize("fault", [faults.NONE, *FAULTS])
def test_the_emulation_notices_damage(outcomes, fault):
    """A check of the checks: a kernel that lacks a wait or mistakes an order fails, by a wrong result or a deadlock."""
    assert outcomes[fault] == ("passed" if fault == faults.NONE else "refused")
