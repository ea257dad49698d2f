# SPDX-License-Identifier: MIT
"""The Hopper attention backward computes the right thing on an emulated H100."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel
from tests.kernels.cuda.planting import Fault


class Backward(EmulatedKernel):
    """Calls have the workspace that the binding asks for, less ``short`` bytes, and one multiprocessor."""

    def run(self, case, data, *, short=0, multiprocessors=1, schedule="late"):
        room = self.binding.workspace_bytes(case) - short
        return super().run(case, data, workspace_bytes=room, multiprocessors=multiprocessors, schedule=schedule)


def built(defines, root=None):
    return Backward("flash_attention_bwd/wgmma_tma", defines, root=root)


@pytest.fixture(scope="module")
def kernel():
    return built({"TENDED_KEYS": 100})


@pytest.fixture(scope="module")
def other():
    """Additions in order."""
    return built({"IN_ORDER": 1, "TENDED_KEYS": 100})


def case(batch, sq, sk, hq, hk, dim, causal, half=0):
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "half": half}


def name(value):
    return "-".join(map(str, value.values()))


@pytest.mark.parametrize(("size", "schedule"), [
    (case(2, 193, 130, 2, 1, 64, 0), "late"),      # tails on both sides, behind which another batch lies; grouped heads
    (case(1, 520, 130, 1, 1, 64, 0), "eager"),       # the ring wraps; each key tile begins at other queries
    (case(1, 300, 300, 1, 1, 64, 1, 1), "eager"),
    (case(1, 270, 140, 1, 1, 128, 0, 1), "eager"),
    (case(1, 130, 250, 2, 1, 128, 1), "late"),     # bottom-right mask
    (case(2, 300, 100, 1, 1, 128, 1), "eager"),      # rows that see no key
    (case(1, 1, 300, 2, 2, 64, 1), "late"),        # one query, which sees all keys
    (case(2, 200, 100, 2, 1, 256, 0), "late"),     # two roles; the ring wraps; grouped heads, tails on both sides
    (case(1, 270, 150, 1, 1, 256, 1, 1), "eager"),   # rows that see no key
    (case(1, 1, 70, 1, 1, 256, 1), "eager"),
], ids=str)
def test_gradients_match_the_reference(kernel, size, schedule):
    kernel.check(size, schedule=schedule, multiprocessors=2)


@pytest.mark.parametrize("dim", [128, 256])
def test_small_weights_keep_their_bits_in_fp16(kernel, dim):
    """dS is made of rounded weights: what fp16 cannot have whole would put dk off by twice its bound at 128."""
    kernel.check(case(1, 128, 128, 1, 1, dim, 1, 1), seed=54)


def test_rows_without_keys_are_exact(kernel):
    size = case(1, 200, 20, 1, 1, 64, 1)
    data = kernel.reference.generate_input(**size, seed=6, device="cpu")
    dq, dk, dv = kernel.run(size, data)
    assert not dq[:, :180].any()
    assert torch.isfinite(dk.float()).all()
    assert torch.isfinite(dv.float()).all()


@pytest.mark.parametrize("size", [
    case(1, 1100, 370, 1, 1, 64, 0), case(1, 530, 600, 2, 1, 128, 0, 1), case(1, 530, 170, 1, 1, 256, 0),
    case(3, 600, 300, 1, 1, 128, 0)], ids=str)     # sections before
def test_last_tiles_in_parts(kernel, size):
    """An odd number of tiles for two multiprocessors: the last one comes in parts."""
    kernel.check(size, multiprocessors=2)


def test_additions_in_order(other):
    """On one multiprocessor: no block may wait for a later one."""
    for size in (case(1, 200, 300, 2, 1, 64, 0), case(1, 130, 390, 1, 1, 128, 1), case(1, 400, 270, 1, 1, 64, 1)):
        other.check(size, schedule="eager")
    other.check(case(5, 40, 130, 2, 1, 64, 0))       # zeros and dq by the main kernel
    other.check(case(4, 200, 200, 2, 1, 64, 1))      # up, and in the last section down
    other.check(case(1, 140, 150, 2, 1, 256, 1), schedule="eager")   # pieces of parts


def test_sums_are_tended_by_the_main_kernel(kernel):
    """Zeros ahead of the tiles that add to them, dq behind: more heads than the blocks take at a time."""
    kernel.check(case(7, 40, 130, 2, 1, 64, 0))
    kernel.check(case(4, 100, 520, 2, 2, 128, 1), schedule="eager")
    kernel.check(case(5, 40, 100, 1, 1, 64, 0), multiprocessors=2)
    kernel.check(case(6, 40, 70, 1, 1, 64, 0))       # zeros alone
    kernel.check(case(4, 70, 130, 1, 1, 256, 1))


@pytest.mark.parametrize(("size", "multiprocessors"), [
    (case(1, 260, 130, 4, 1, 64, 0), 8),           # a head of the group each
    (case(2, 70, 130, 3, 1, 128, 1, 1), 8),        # two heads and one; queries that see all keys
    (case(1, 520, 260, 1, 1, 64, 1, 1), 9),        # no group: parts have different queries
    (case(1, 100, 260, 1, 1, 128, 1), 16),         # more parts than tiles of queries: some are empty
    (case(1, 100, 130, 4, 1, 256, 1), 16),
], ids=str)
def test_tiles_in_parts_add_up(kernel, size, multiprocessors):
    """Few tiles of keys for many multiprocessors: blocks share a tile's work, and dk and dv are sums of theirs."""
    kernel.check(size, multiprocessors=multiprocessors)


def test_a_small_workspace_is_refused(kernel):
    size = case(1, 64, 64, 1, 1, 64, 0)
    data = kernel.reference.generate_input(**size, seed=1, device="cpu")
    with pytest.raises(AssertionError, match="status -2"):
        kernel.run(size, data, short=kernel.binding.workspace_bytes(size) - 32 * 1024)


def test_other_head_dimensions_are_refused(kernel):
    size = case(1, 64, 64, 1, 1, 192, 0)
    with pytest.raises(AssertionError, match="status -1"):
        kernel.run(size, kernel.reference.generate_input(**size, seed=1, device="cpu"))


@pytest.mark.parametrize("half", [0, 1])
def test_steep_scores(kernel, half):
    """Beyond the range of fp32's exponentials, as are the log-sum-exps."""
    kernel.check(case(1, 150, 300, 2, 1, 64, 1, half) | {"steep": 1})
    kernel.check(case(1, 70, 300, 2, 1, 256, 1, half) | {"steep": 1})


FAULTS = {
    "release": Fault(
        "attention/backward_mainloop.h", "if (step > 0) release(memory.queries_empty(before));", shows="barrier"),
    "mask": Fault(
        "attention/backward_mainloop.h", "own - ahead - first_query", "own - ahead - first_query + FAULT"),
    "early": Fault(
        "attention/backward_rows.h", "wait_for_count(p.added + slice / pieces, kAdders * p.tasks_of_head());"),
    "parts": Fault(
        "attention/backward_shape.h", "t.last = first + p.share(count, t.part + 1) - 1;",
        "t.last = first + p.share(count, t.part + 1) - 1 + FAULT;"),
    "unread": Fault(
        "attention/backward_roles.h", "mbarrier_wait(memory.weights_empty(), passed.parity() ^ 1);",
        shows="shared-race"),
    "unwritten": Fault(
        "attention/backward_roles.h", "mbarrier_wait(memory.weights_full(), passed.parity());", shows="shared-race"),
}


def planted(root):
    kernel = built({"TENDED_KEYS": 1}, root)

    def check(fault):
        dim = 256 if fault[:2] == "un" else 128
        size = case(4, 40, 130, 1, 1, 64, 0) if fault == "early" else case(1, 260, 260, 1, 1, dim, 1)
        kernel.check(size, multiprocessors=8 if fault == "parts" else 1)

    return kernel, check


def test_faults_are_noticed(tmp_path):
    """A check of the checks: to keep a place, mask wrongly, write dq early or pass weights unasked does not pass."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
