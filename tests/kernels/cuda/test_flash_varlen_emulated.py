# SPDX-License-Identifier: MIT
"""The Hopper attention forward over packed sequences computes the right thing, run on the host thread by thread."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.kernels.cuda.attention_host import ROOT
from tests.kernels.cuda.flash_emulation import EmulatedFlash

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


def lowered(folder: Path) -> Path:
    """Kernels whose L2 holds so little that small batches have sections, and of which bf16 alone is built."""
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    for path, line, other in (
        ("tile/wgmma_flash_launch.h", "kFlashRoom = 32 << 20", "kFlashRoom = 1 << 14"),
        ("flash_attention_varlen/wgmma_tma.cu", "longest.keys > 4096", "longest.keys > 200"),
        ("flash_attention_varlen/wgmma_tma.cu", "dispatch<Fp16>", "dispatch<Bf16>"),
    ):
        source = folder / "kernels/cuda" / path
        text = source.read_text()
        assert line in text
        source.write_text(text.replace(line, other))
    return folder / "kernels"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    return EmulatedFlash(folder, {}, kernels=lowered(folder), problem="flash_attention_varlen")


def case(batch, tq, tk, lens, hq, hk, dim, causal):
    return {"batch": batch, "tq": tq, "tk": tk, "lens": lens, "hq": hq, "hk": hk, "dim": dim, "causal": causal,
            "half": 0}


# Keys that no query sees hold NaN, also those behind a sequence that a box ends in.
@pytest.mark.parametrize(("size", "processors"), [
    (case(9, 430, 510, "mixed", 4, 2, 64, 1), 1),     # none or one query or key; two groups of heads
    (case(2, 500, 600, "tail", 1, 1, 64, 1), 2),      # tiles of 192 rows
    (case(15, 660, 700, "mixed", 1, 1, 128, 0), 3),
    (case(3, 300, 250, "tail", 2, 2, 128, 1), 1),
    (case(4, 260, 200, "tail", 2, 1, 256, 1), 2),
    (case(7, 20, 333, "mixed", 8, 2, 64, 1), 3),      # few queries: mma.sync's tiles
], ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else f"{value} blocks")
def test_packed_sequences_match_the_reference(packed, size, processors):
    packed.check(size, eager=processors == 2, processors=processors, workspace_bytes=1 << 12)


def test_a_list_without_room_for_groups_of_heads_serves_all(packed):
    size = case(3, 200, 200, "tail", 2, 2, 64, 1)
    data = packed.reference.generate_input(**size, seed=3, device="cpu")
    entries = 1 + 3 + 200 // 256
    small, large = (packed.run(size, data, processors=2, workspace_bytes=32 * n) for n in (entries, 4 * entries))
    assert all(torch.equal(a, b) for a, b in zip(small, large, strict=True))


RUN = """
import sys, pathlib; sys.path.insert(0, {root!r})
from tests.kernels.cuda.flash_emulation import EmulatedFlash
kernels, out = (pathlib.Path(path) for path in ({kernels!r}, {out!r}))
kernel = EmulatedFlash(out, {{}}, optimise=0, kernels=kernels, problem="flash_attention_varlen")
size = dict(batch=3, tq=150, tk=170, lens="tail", hq=2, hk=2, dim=64, causal=1, half=0)
kernel.check(size, processors=2, workspace_bytes=1 << 12)
"""


@pytest.mark.parametrize(
    ("header", "line", "damaged"),
    [
        ("wgmma_flash.h", "    grid_dependency_wait();\n    grid_dependency_release();", ""),
        ("varlen_plan.h", "before * b.head_groups + group * beside", "group * beside"),
        ("wgmma_flash_sequence.h", "return tile.first_query + row < tile.queries;", "return true;"),
    ],
    ids=["earlier launches", "sections", "behind"],
)
def test_the_emulation_notices_damage(tmp_path, header, line, damaged):
    """A check of the checks: a kernel that starts on an unfinished list, that loads queries from behind a sequence, or a
    list that lacks entries fails.
    """
    kernels = lowered(tmp_path)
    kernel = kernels / "cuda/flash_attention_varlen/wgmma_tma.cu"
    text = kernel.read_text()
    for dim in (128, 256):
        text = text.replace(f"        case {dim}:", f"        // case {dim}:")
    kernel.write_text(text)
    path = kernels / "cuda/tile" / header
    text = path.read_text()
    assert line in text
    path.write_text(text.replace(line, damaged))
    script = RUN.format(root=str(ROOT), out=str(tmp_path), kernels=str(kernels))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "AssertionError" in done.stderr or "emulation:" in done.stderr
