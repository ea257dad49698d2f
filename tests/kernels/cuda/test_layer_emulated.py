# SPDX-License-Identifier: MIT
"""amd_mla_decode's Hopper kernel computes the right thing on an emulated H100, where a plain kernel takes the place of
the library's products."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel
from tests.kernels.cuda.planting import Fault

KERNEL = "amd_mla_decode/wgmma_absorbed"


class Layer(EmulatedKernel):
    """Calls have the workspace that the binding asks for, and the rest of the cache stays as it was."""

    def run(self, case, data, *, workspace_bytes=None, **options):
        room = self.binding.workspace_bytes(case) if workspace_bytes is None else workspace_bytes
        before, at = data[2].clone(), case["prefill"]
        outputs = super().run(case, data, workspace_bytes=room, **options)
        before[:, at] = outputs[1][:, 0]
        assert torch.equal(before.view(torch.int16), data[2].view(torch.int16)), "the cache is not as it should be"
        return outputs


def size(batchsize, prefill):
    return {"batchsize": batchsize, "dim": 32, "dq": 16, "prefill": prefill}


@pytest.fixture(scope="module")
def layer():
    return Layer(KERNEL)


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_it_matches_the_reference(layer, schedule):
    layer.check(size(1, 0), seed=3, schedule=schedule)        # the newest token alone
    layer.check(size(1, 63), seed=3, schedule=schedule)       # it ends a page
    layer.check(size(2, 330), seed=3, schedule=schedule)      # both stages several times; positions share angles


def test_requests_that_are_cut(layer):
    layer.check(size(3, 300), seed=3, multiprocessors=10)


@pytest.mark.parametrize(("change", "room", "status"), [
    ({}, 1 << 20, -2), ({"prefill": 8192}, None, -1), ({"dq": 12}, None, -1)], ids=["workspace", "length", "rank"])
def test_what_it_declines(layer, change, room, status):
    data = layer.reference.generate_input(**size(1, 1), seed=1, device="cpu")
    with pytest.raises(AssertionError, match=f"status {status}"):
        layer.run(size(1, 1) | change, data, workspace_bytes=room)


def test_steep_scores(layer):
    """Beyond the range of fp32's exponentials in some heads, with maxima that jump between pages."""
    layer.check(size(1, 300) | {"steep": 1})


FAULTS = {"keys of another position": Fault(   # every page with the rotary columns of the first
    "mla/wgmma_producer.h", "(numbers.first + page)", "(numbers.first + (FAULT ? 0 : page))")}


def planted(root):
    layer = Layer(KERNEL, root=root)
    return layer, lambda _fault: layer.check(size(1, 330), seed=3)


def test_faults_are_noticed(tmp_path):
    """A check of the checks."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
