# SPDX-License-Identifier: MIT
"""The Hopper attention from e4m3 computes the right thing on an emulated H100."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel
from tests.kernels.cuda.planting import Fault

KERNEL = "flash_attention_fp8/wgmma_tma"


def room(size, count=None):
    """Bytes of transposed values and of the counts behind them."""
    blocks = -(-size["sk"] // 128)
    if count is None:
        count = 4 * (3 + size["batch"] * size["hk"] * blocks)
    return size["batch"] * size["hk"] * size["dim"] * blocks * 128 + count


@pytest.fixture(scope="module")
def kernel():
    return EmulatedKernel(KERNEL)


@pytest.fixture(scope="module")
def sharing():
    """The kernel whose blocks share the transposition of V at every length, as they do at long ones."""
    return EmulatedKernel(KERNEL, {"IN_BLOCK": 0})


def case(batch, sq, sk, hq, hk, dim, causal, scales, rotated=0, outliers=0):
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "scales": scales,
            "rotated": rotated, "outliers": outliers}


def name(value):
    return "-".join(map(str, value.values()))


@pytest.mark.parametrize(("size", "schedule", "processors"), [
    (case(1, 200, 330, 2, 1, 64, 0, "head"), "late", 1),            # tails on both sides; grouped heads
    (case(1, 200, 300, 1, 1, 64, 1, "head"), "eager", 1),            # bottom-right mask
    (case(1, 200, 260, 1, 1, 64, 1, "block", 1, 1), "eager", 1),
    (case(1, 130, 500, 2, 2, 128, 0, "tensor", 0, 1), "eager", 1),   # the rings wrap; two tiles per block
    (case(1, 130, 300, 1, 1, 128, 1, "head"), "late", 1),
    (case(2, 129, 290, 1, 1, 128, 1, "block"), "late", 2),           # behind the tail another batch lies
    (case(1, 130, 290, 1, 1, 256, 0, "head"), "late", 1),
    (case(1, 129, 257, 1, 1, 256, 1, "block", 1, 1), "eager", 1),
    # the first tile is one step, of which its first warpgroup sees half; others follow in the same block
    (case(1, 300, 300, 1, 1, 64, 1, "head"), "random:1", 1),
    (case(1, 300, 300, 1, 1, 128, 1, "head"), "late", 1),
    (case(1, 300, 300, 1, 1, 128, 1, "block"), "eager", 1),
    (case(1, 300, 300, 1, 1, 256, 1, "head"), "late", 1),
    (case(1, 300, 300, 1, 1, 256, 1, "block"), "random:2", 1),
    (case(1, 1100, 1100, 1, 1, 64, 1, "head"), "late", 1),           # the tile of three consumers
    # half a step of keys and nothing else
    (case(1, 200, 60, 1, 1, 64, 0, "head"), "late", 1),
    (case(1, 200, 60, 1, 1, 256, 0, "head"), "late", 1),
    # without a mask: what is left behind one or several whole steps is multiplied by itself; turns at 128, none at 64
    (case(1, 400, 155, 1, 1, 64, 0, "head"), "late", 1),
    (case(1, 200, 300, 2, 1, 64, 0, "head", 0, 1), "eager", 2),
    (case(1, 300, 192, 1, 1, 128, 0, "head"), "late", 1),
    (case(1, 130, 700, 1, 1, 128, 0, "tensor"), "random:3", 1),
    (case(1, 200, 624, 2, 1, 128, 0, "head"), "late", 1),            # 112 of 128 keys are left: too many for a tail
    (case(1, 130, 4130, 1, 1, 64, 0, "head"), "late", 1),            # long: in turns, with a last step that is masked
    (case(1, 1, 1, 2, 1, 64, 0, "tensor"), "late", 64),            # few queries: transposed in the block
    (case(1, 65, 150, 2, 1, 128, 1, "block"), "eager", 64),
    (case(1, 3, 170, 1, 1, 256, 0, "head"), "late", 64),
], ids=lambda value: name(value) if isinstance(value, dict) else str(value))
def test_matches_the_reference(kernel, size, schedule, processors):
    kernel.check(size, schedule=schedule, multiprocessors=processors, workspace_bytes=room(size))


@pytest.mark.parametrize("size", [
    case(1, 130, 500, 2, 2, 128, 0, "tensor", 0, 1), case(1, 130, 300, 1, 1, 128, 1, "head"),
    case(1, 130, 290, 1, 1, 256, 1, "head"), case(1, 200, 90, 1, 1, 128, 0, "head"),
    case(1, 300, 300, 1, 1, 256, 1, "head"),
    case(1, 300, 220, 2, 1, 128, 0, "head"), case(1, 130, 448, 2, 1, 128, 0, "head"),      # 28 and 64 keys are left,
    case(1, 300, 257, 1, 1, 128, 0, "tensor"), case(1, 130, 350, 1, 1, 128, 0, "head"),    # 65, and too many for a tail
    case(1, 400, 300, 1, 1, 64, 0, "head")], ids=name)                                      # in turns
def test_matches_the_reference_sharing(sharing, size):
    sharing.check(size, schedule="late", multiprocessors=1, workspace_bytes=room(size))


@pytest.mark.parametrize(("dim", "scales"), [
    (64, "head"), (128, "head"), (128, "block"), (256, "head"), (256, "block")])
def test_rows_without_keys_are_exact(kernel, dim, scales):
    """Tiles without keys between others: by count those with keys come first, in pairs after those of another head."""
    size = case(1, 300, 20, 2, 1, dim, 1, scales)
    data = kernel.reference.generate_input(**size, seed=6, device="cpu")
    o, lse = kernel.run(size, data, multiprocessors=1, workspace_bytes=room(size))
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
    kernel.verify(size, data, multiprocessors=1, workspace_bytes=room(size))


def test_causal_tiles_come_by_count(kernel, sharing):
    """Three blocks for eight tiles of different lengths; without room for counts, a block per tile or equal shares."""
    size = case(1, 520, 640, 2, 1, 128, 1, "head")
    for count in (None, 0):
        sharing.check(size, multiprocessors=3, workspace_bytes=room(size, count))
    for space in (4, 0):
        kernel.check(size, multiprocessors=3, workspace_bytes=space)


def test_blocks_that_run_together_share_the_transposition(sharing):
    """Several heads and blocks of keys, so that every block transposes pieces that another one wants."""
    for dim, causal, keys in ((128, 1, 520), (128, 0, 480), (256, 0, 520)):
        size = case(1, 260, keys, 4, 2, dim, causal, "head")
        sharing.check(size, multiprocessors=5, workspace_bytes=room(size), schedule="random:1")
        assert sharing.used_workspace


def test_without_a_workspace_each_block_transposes_for_itself(kernel):
    for dim in (64, 256):
        kernel.check(case(1, 130, 200, 1, 1, dim, 1, "head"), multiprocessors=1)


def test_no_bank_is_used_twice(kernel, sharing):
    for dim in (64, 128, 256):
        size = case(1, 60, 150, 1, 1, dim, 0, "head")
        assert kernel.conflicts(size, multiprocessors=64, workspace_bytes=room(size)) == []
        assert sharing.conflicts(size, multiprocessors=1, workspace_bytes=room(size)) == []


@pytest.mark.parametrize("size", [
    case(1, 100, 700, 4, 2, 64, 0, "head"), case(1, 70, 700, 2, 2, 128, 1, "block")], ids=name)
def test_steep_scores(kernel, size):
    """Beyond the range of fp32's exponentials, with maxima that jump between tiles of keys."""
    kernel.check(size | {"steep": 1}, multiprocessors=1, workspace_bytes=room(size))


FAULTS = {
    "values empty": Fault(
        "attention/fp8_forward.h", "mbarrier_wait(memory.values_empty(values_at.stage), values_at.parity ^ 1);",
        shows="shared-race", times=2),
    "scale of values": Fault("attention/fp8_softmax.h", "rows[half].sum += sums[half] * step.value_inverse;",
                             "rows[half].sum += sums[half];"),
    "piece announced early": Fault("attention/fp8_forward.h", "bulk_wait_done<1>();", shows="global-race"),
    "piece loaded early": Fault("attention/fp8_forward.h", "tma_store_wait_read<0>();", shows="shared-race"),
    "piece not waited for": Fault(
        "attention/fp8_forward.h", "if (!all_turned && min(turned_first, turned_last) < kColumns) {",
        "if (!FAULT && !all_turned && min(turned_first, turned_last) < kColumns) {", shows="global-race"),
}


def planted(root):
    kernel = EmulatedKernel(KERNEL, {"IN_BLOCK": 0}, root=root)

    def check(fault):
        size = case(1, 200, 400, 1, 1, 256 if "piece" in fault else 64, 0, "head" if "piece" in fault else "block")
        kernel.check(size, multiprocessors=1, workspace_bytes=room(size))

    return kernel, check


def test_faults_are_noticed(tmp_path):
    """A check of the checks: a kernel that lacks a wait or mistakes an order does not pass."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
