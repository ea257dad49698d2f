# SPDX-License-Identifier: MIT
"""The Hopper attention forward computes the right thing on an emulated H100."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel, copied
from tests.kernels.cuda.planting import Fault

KERNEL = "flash_attention/wgmma_tma"


def lower_thresholds(folder):
    """What decides between instances is the length: let small cases be long ones."""
    return copied(folder, (f"{KERNEL}.cu", "a.seqlen_k <= 1024", "a.seqlen_k <= 128"),
                  (f"{KERNEL}.cu", "a.seqlen_k > 4096", "a.seqlen_k > 128"))


def check_scaled_keys(kernel, size, factors):
    q, k, v, causal, scale = kernel.reference.generate_input(**size, seed=7, device="cpu")
    data = (q, (k * factors[None, :, None, None]).to(k.dtype), v, causal, scale)
    kernel.verify(size, data, multiprocessors=1)


def check_jump(kernel, size, first, factor):
    """The first keys, that part of them, are multiplied with `factor`, the others with 1/2."""
    check_scaled_keys(kernel, size, torch.where(torch.arange(size["sk"]) < first * size["sk"], factor, 0.5))


@pytest.fixture(scope="module", params=["shipped", "long", "no slack"])
def kernel(request, tmp_path_factory):
    root = lower_thresholds(tmp_path_factory.mktemp("long")) if request.param == "long" else None
    plain = {"SLACK": 0, "SEAMLESS": 0, "PACK_HEADS": 0}
    return EmulatedKernel(KERNEL, plain if request.param == "no slack" else {}, root=root)


@pytest.fixture(scope="module")
def shipped():
    return EmulatedKernel(KERNEL)


def case(batch, sq, sk, hq, hk, dim, causal, half=0):
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "half": half}


def name(value):
    return "-".join(map(str, value.values()))


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("size", [
    case(2, 193, 130, 2, 1, 64, 0),          # tails on both sides, behind which another batch lies; grouped heads
    case(1, 400, 400, 1, 1, 64, 1),          # three tiles: a pair and one alone
    case(1, 200, 500, 2, 2, 128, 0, 1),      # the rings wrap
    case(1, 300, 420, 2, 1, 128, 1),         # bottom-right mask
    case(2, 300, 100, 1, 1, 128, 1, 1),      # a tile that sees no key, rows that see none
    case(1, 257, 290, 1, 1, 256, 0),
    case(1, 257, 257, 1, 1, 256, 1, 1),
], ids=name)
def test_whole_tiles_match_the_reference(kernel, size, schedule):
    kernel.check(size, schedule=schedule, multiprocessors=1)


def test_blocks_share_the_tiles(kernel):
    for causal in (0, 1):
        for processors in (2, 3):
            kernel.check(case(2, 280, 150, 3, 3, 128, causal), multiprocessors=processors)


@pytest.mark.parametrize("size", [case(1, 200, 700, 2, 1, 64, 0, 1), case(1, 150, 700, 2, 2, 128, 1),
                                  case(1, 100, 500, 1, 1, 256, 0)], ids=name)
def test_steep_scores(kernel, size):
    """Beyond the range of fp32's exponentials, with maxima that jump between tiles of keys by more than the slack."""
    kernel.check(size | {"steep": 1}, multiprocessors=1)


def test_no_bank_is_used_twice(kernel):
    for dim in (64, 128, 256):
        for processors in (1, 64):     # tiles for many queries and for few
            assert kernel.conflicts(case(1, 200, 330, 1, 1, dim, 1), multiprocessors=processors) == []


@pytest.mark.parametrize("dim", [64, 128])
def test_blocks_take_the_longest_tile_left(kernel, dim):
    """By a count in the workspace, which holds anything before."""
    for processors in (1, 3):
        kernel.check(case(1, 450, 450, 2, 1, dim, 1), schedule="eager" if processors == 3 else "late",
                     multiprocessors=processors, workspace_bytes=64)
    assert kernel.used_workspace or dim == 128   # the lengths of the instance at 128 are others


@pytest.mark.parametrize(("size", "processors", "shape"), [
    (case(1, 450, 450, 2, 1, 64, 1), 3, "Li4ELi64E"),        # 256 queries x 64 keys
    (case(1, 340, 340, 1, 1, 64, 0), 1, "Li3ELi128E"),       # 192 x 128: less of the last tile is empty
    (case(2, 330, 410, 1, 1, 64, 1, 1), 1, "Li3ELi128E"),
    (case(1, 400, 400, 1, 1, 64, 1), 3, "Li2ELi128E"),       # 128 x 128: the longest tile is shorter
    (case(1, 520, 520, 1, 1, 64, 0, 1), 5, "Li2ELi128E"),
], ids=lambda value: name(value) if isinstance(value, dict) else str(value))
def test_tiles_at_head_dim_64_are_those_that_end_first(shipped, size, processors, shape):
    launches = shipped.counted(size, multiprocessors=processors, workspace_bytes=64)
    assert [each["kernel"] for each in launches if f"Li64E{shape}" in each["kernel"]]


@pytest.mark.parametrize("size", [
    case(1, 1, 1, 1, 1, 64, 0), case(2, 100, 300, 2, 1, 64, 1, 1), case(1, 130, 150, 1, 1, 128, 1),
    case(1, 65, 170, 1, 1, 256, 0),
], ids=name)
@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_few_queries_match_the_reference(kernel, size, schedule):
    kernel.check(size, schedule=schedule, multiprocessors=64)


def test_keys_of_few_queries_are_split(kernel):
    size = case(1, 3, 1500, 2, 1, 64, 1)
    part = size["sq"] * size["hq"] * (size["dim"] + 1) * 4
    kernel.check(size, workspace_bytes=16 * part, multiprocessors=64)


@pytest.mark.parametrize(("size", "workspace_bytes", "processors"), [
    (case(1, 16, 1100, 8, 1, 128, 1, 1), 1 << 20, 16),  # eight heads in a tile, whose keys are split
    (case(1, 40, 170, 4, 1, 64, 1), 0, 1),              # two tiles of four heads
], ids=lambda value: name(value) if isinstance(value, dict) else None)
def test_heads_that_share_keys_share_tiles(kernel, size, workspace_bytes, processors):
    kernel.check(size, workspace_bytes=workspace_bytes, multiprocessors=processors)
    assert kernel.used_workspace == (workspace_bytes > 0)


@pytest.mark.parametrize(("size", "processors"), [
    (case(2, 200, 200, 7, 1, 128, 1), 3),         # 63 of 64 rows are used; more tiles than blocks, there and back
    (case(1, 283, 310, 10, 2, 128, 0, 1), 1),     # 60 of 64
    (case(2, 140, 150, 6, 2, 256, 1), 2),
    (case(1, 632, 640, 2, 1, 128, 1), 5),         # no tile is saved: tiles of a mask are few
    (case(2, 20, 500, 7, 1, 128, 1), 3),          # few queries, split
], ids=lambda value: name(value) if isinstance(value, dict) else str(value))
def test_any_number_of_heads_shares_tiles(kernel, size, processors):
    kernel.check(size, multiprocessors=processors, workspace_bytes=1 << 22)


def test_rows_without_keys_are_exact(kernel):
    size = case(1, 300, 20, 1, 1, 64, 1)
    data = kernel.reference.generate_input(**size, seed=6, device="cpu")
    for processors in (1, 64):
        o, lse = kernel.run(size, data, multiprocessors=processors)
        assert not o[:, :280].any()
        assert torch.isneginf(lse[..., :280]).all()
        assert torch.isfinite(lse[..., 280:]).all()


def test_the_same_bits_however_copies_are_timed(kernel):
    size = case(1, 300, 400, 2, 2, 64, 1)
    kernel.same_in_every_schedule(size, multiprocessors=1)


def test_scores_that_rise_step_by_step_are_corrected(kernel):
    """Each step's scores exceed the last one's by far more than the slack, from the last keys to the first."""
    size = case(1, 192, 700, 1, 1, 64, 0)
    check_scaled_keys(kernel, size, torch.linspace(12, 0.5, size["sk"]))


@pytest.mark.parametrize("size", [
    case(1, 192, 700, 1, 1, 64, 0), case(1, 150, 420, 1, 1, 128, 1, 1), case(1, 140, 400, 1, 1, 256, 1)], ids=name)
@pytest.mark.parametrize(
    ("first", "factor"), [(0.5, 30), (0.5, 10), (0.1, 60)], ids=["lost", "large", "at the end"])
def test_scores_that_jump_are_not_lost(kernel, size, first, factor):
    """Keys are walked from the last to the first: late ones exceed what was there by far more than fp32 holds."""
    check_jump(kernel, size, first, factor)


FAULTS = {
    "keys empty": Fault("attention/forward.h", "mbarrier_wait(memory.keys_empty(key_at.stage), key_at.parity ^ 1);",
                        shows="mbarrier"),
    "wait": Fault("attention/forward_mainloop.h", "wgmma_wait<0>();\n                wgmma_results(out);",
                  shows="shared-race"),
    "turn": Fault(
        "attention/forward_mainloop.h", "if constexpr (Shape::kPingPong) at.pass_ping_pong();\n            if (!Shape",
        "if (Shape::kPingPong && !FAULT) at.pass_ping_pong();\n            if (!Shape", "barrier"),
    "overwritten": Fault("attention/forward_mainloop.h", "= Shape::kClears || begun != 0;",
                         "= Shape::kClears || FAULT || begun != 0;"),
    "stored too soon": Fault(
        "attention/forward_mainloop.h", "wgmma_wait<1>();\n                wgmma_results(out);", shows="in-flight"),
    "correction": Fault("attention/forward_mainloop.h", "kAll / 2);\n            correct(",
                        "kAll / 2);\n            if (!FAULT) correct("),
    "lost": Fault("attention/forward_softmax.h", "            again();\n", "            if (!FAULT) again();\n"),
    "tile forgotten": Fault(
        "attention/forward_shape.h", "number % Shape::kTiles", "number % (FAULT ? 1 : Shape::kTiles)",
        "shared-race"),
    "rows of P": Fault(
        "attention/forward_mainloop.h", "thread % 16, columns", "(FAULT ? thread % 8 : thread % 16), columns"),
    "place": Fault(
        "attention/forward_shape.h", "return (number * Shape::kGroups + group) / Shape::kQuerySlots % 2;",
        "return (FAULT ? number : (number * Shape::kGroups + group) / Shape::kQuerySlots) % 2;", "uninitialised"),
}


def planted(root):
    file = f"{KERNEL}.cu"
    built_sooner = (
        (file, "    const Plan<Few> few(", "#if 0\n    const Plan<Few> few("),
        (file, "    constexpr bool kNarrow", "#endif\n    constexpr bool kNarrow"),
        (file, "    const int filling", "#if 0\n    const int filling"),
        (file, "    return launch_tiles<", "#endif\n    return launch_tiles<"),
        (file, "dispatch<Fp16>", "dispatch<Bf16>"),
        (file, "        case 128: return choose<Element, 128>(a, workspace, workspace_bytes, queue);\n", ""),
    )
    kernel = EmulatedKernel(KERNEL, {"SLACK": 0}, root=copied(lower_thresholds(root), *built_sooner))

    def check(fault):
        if fault in (planting.NONE, "place"):   # of queries at 256, where warpgroups take places in turn
            kernel.check(case(1, 257, 100, 1, 1, 256, 0), multiprocessors=1)
        if fault in (planting.NONE, "stored too soon"):
            kernel.check(case(1, 257, 150, 1, 1, 256, 1), multiprocessors=1)
        kernel.check(case(1, 300, 560, 2, 1, 64, 0), multiprocessors=1)
        check_jump(kernel, case(1, 300, 560, 2, 1, 64, 0), 0.5, 30)

    return kernel, check


def test_faults_are_noticed(tmp_path):
    """A check of the checks: a kernel that lacks one wait or miscounts does not pass."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
