# SPDX-License-Identifier: MIT
"""The Hopper attention forward over packed sequences computes the right thing on an emulated H100."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel, copied
from tests.kernels.cuda.planting import Fault

KERNEL = "flash_attention_varlen/wgmma_tma"


def lower(folder):
    """Let L2 hold so little that small batches have sections, and build bf16 alone."""
    return copied(
        folder,
        ("attention/forward.h", "kFlashRoom = 32 << 20", "kFlashRoom = 1 << 14"),
        (f"{KERNEL}.cu", "longest.keys > 4096", "longest.keys > 200"),
        (f"{KERNEL}.cu", "longest.keys > 2048", "longest.keys > 120"),
        (f"{KERNEL}.cu", "dispatch<Fp16>", "dispatch<Bf16>"),
    )


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return EmulatedKernel(KERNEL, root=lower(tmp_path_factory.mktemp("packed")))


def case(batch, tq, tk, lens, hq, hk, dim, causal):
    return {"batch": batch, "tq": tq, "tk": tk, "lens": lens, "hq": hq, "hk": hk, "dim": dim, "causal": causal,
            "half": 0}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Blocks that work out their share of the tiles: there is no list."""
    faulty = "plan_tiles(b);\n}\n\n/// How many heads", "}\n\n/// How many heads"
    return EmulatedKernel(KERNEL, root=copied(
        tmp_path_factory.mktemp("shared"), ("attention/forward_varlen.h", *faulty),
        (f"{KERNEL}.cu", "dispatch<Fp16>", "dispatch<Bf16>")))


# Keys that no query sees hold NaN, also those behind a sequence that a box ends in.
@pytest.mark.parametrize(("size", "processors"), [
    (case(9, 430, 510, "mixed", 4, 2, 64, 1), 1),     # none or one query or key; two groups of heads
    (case(2, 500, 600, "tail", 1, 1, 64, 1), 2),      # tiles of 192 rows
    (case(15, 660, 700, "mixed", 1, 1, 128, 0), 3),
    (case(3, 300, 250, "tail", 2, 2, 128, 1), 1),
    (case(4, 260, 200, "tail", 2, 1, 256, 1), 2),
    (case(3, 300, 250, "tail", 2, 1, 256, 1), 1),     # 80 keys
    (case(3, 300, 190, "tail", 2, 2, 256, 0), 2),
    (case(7, 20, 333, "mixed", 8, 2, 64, 1), 3),      # few queries: mma.sync's tiles
], ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else f"{value} blocks")
def test_packed_sequences_match_the_reference(packed, size, processors):
    packed.check(size, schedule="eager" if processors == 2 else "late", multiprocessors=processors,
                 workspace_bytes=1 << 12)


@pytest.mark.parametrize(("size", "processors"), [
    (case(32, 900, 1000, "mixed", 2, 1, 64, 1), 13),  # a sequence to each lane
    (case(9, 700, 510, "mixed", 2, 2, 128, 1), 5),    # queries that see no key
    (case(5, 1500, 1500, "tail", 1, 1, 128, 1), 4),   # several tiles of a sequence are as long as one of another
    (case(5, 900, 900, "tail", 3, 1, 128, 0), 9),
    (case(3, 300, 250, "tail", 2, 1, 256, 1), 3),
    (case(1, 700, 900, "uniform", 1, 1, 128, 1), 132),
], ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else f"{value} blocks")
def test_blocks_find_their_tiles_without_a_list(shared, size, processors):
    shared.check(size, multiprocessors=processors, workspace_bytes=1 << 12)


def test_a_list_without_room_for_groups_of_heads_serves_all(packed):
    size = case(3, 200, 200, "tail", 2, 2, 64, 1)
    data = packed.reference.generate_input(**size, seed=3, device="cpu")
    entries = 1 + 3 + 200 // 256
    small, large = (packed.run(size, data, multiprocessors=2, workspace_bytes=32 * n) for n in (entries, 4 * entries))
    assert all(torch.equal(a, b) for a, b in zip(small, large, strict=True))


def test_steep_scores(packed):
    """Beyond the range of fp32's exponentials, with maxima that jump between tiles of keys."""
    packed.check(case(3, 150, 1000, "tail", 2, 1, 64, 1) | {"steep": 1}, multiprocessors=2,
                 workspace_bytes=1 << 12)


FAULTS = {
    "earlier launches": Fault(
        "attention/forward.h", "__syncthreads();\n    grid_dependency_wait();\n    grid_dependency_release();",
        "__syncthreads();", "grid-order"),
    "sections": Fault("attention/varlen.h", "write(before * b.head_groups",
                      "write((FAULT ? 0 : before) * b.head_groups", "barrier"),
    "behind": Fault("attention/forward_varlen.h", "return tile.first_query + row < tile.queries;",
                    "return FAULT || tile.first_query + row < tile.queries;", "bounds"),
    "keys of others": Fault("attention/forward_mainloop.h", "if (next.steps > 0) mbarrier_wait(",
                            "if (FAULT ? step >= 0 : next.steps > 0) mbarrier_wait(", "shared-race"),
}


def planted(root):
    line = "        case 128: return choose<Element, 128>(a, batch, longest, to);\n"
    kernel = EmulatedKernel(KERNEL, root=copied(lower(root), (f"{KERNEL}.cu", line, "")))     # built sooner

    def check(fault):
        if fault in (planting.NONE, "keys of others"):
            kernel.check(case(3, 300, 250, "tail", 2, 1, 256, 1), multiprocessors=1, workspace_bytes=1 << 12)
        if fault != "keys of others":
            kernel.check(case(3, 150, 170, "tail", 2, 2, 64, 1), multiprocessors=2, workspace_bytes=1 << 12)

    return kernel, check


def test_faults_are_noticed(tmp_path):
    """A check of the checks: a kernel does not pass that starts on an unfinished list or loads queries from behind a
    sequence, whose list lacks entries, or that multiplies keys that may be coming, though nobody looks at the result.
    """
    planting.noticed(planting.outcomes(tmp_path, FAULTS, planted), FAULTS)
