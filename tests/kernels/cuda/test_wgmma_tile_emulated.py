# SPDX-License-Identifier: MIT
"""The workbench's wgmma tiles on the host: every layout and type, faults that must show, and the printed maps."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest
import torch

from tests.kernels.cuda.host_kernel import HostKernel, emulated

BENCH = Path(__file__).resolve().parents[3] / "workbench"
VARIANTS = sorted(path.stem for path in (BENCH / "kernels/cuda/wgmma_tile").glob("*.cu"))
CASES = [{"n": n, "k": k, "type": kind, "repeat": 2, "pattern": pattern} for n, k, kind, pattern in (
    (16, 16, "half", "picture"), (64, 80, "half", "random"), (64, 64, "bfloat", "random"), (16, 24, "tfloat", "random"),
    (64, 64, "tfloat", "random"), (64, 160, "eight", "random"), (256, 32, "half", "random"),
    (256, 64, "eight", "random"))]

spec = importlib.util.spec_from_file_location("layout", BENCH / "layout.py")
assert spec is not None
assert spec.loader is not None
layout = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layout)


@emulated
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_layout_and_type(variant: str, tmp_path: Path) -> None:
    kernel = HostKernel(f"wgmma_tile/{variant}", tmp_path, kernels=BENCH / "kernels")
    for case in CASES:
        if variant == "chain" and case["type"] == "eight":
            continue
        kernel.check(case)


@emulated
@pytest.mark.parametrize(("before", "after"), [
    ("address >> 7 & kMask", "address >> 8 & kMask"),
    ("wgmma_operand_32(shared)", "wgmma_operand_plain(shared, 128, 256)"),
    ("fence_async_shared();", "fence_async_shared(); if (threadIdx.x == 5) b_shared[8] ^= 0x40;"),
])
def test_a_wrong_layout_is_seen(before: str, after: str, tmp_path: Path) -> None:
    text = (BENCH / "kernels/cuda/wgmma_tile/tile.h").read_text()
    assert before in text
    (tmp_path / "tile.h").write_text(text.replace(before, after))
    file = tmp_path / "wrong.cu"
    file.write_text((BENCH / "kernels/cuda/wgmma_tile/swizzle_32.cu").read_text())
    kernel = HostKernel("wgmma_tile/swizzle_32", tmp_path, kernels=BENCH / "kernels", file=file)
    with pytest.raises(AssertionError, match="elements are wrong"):
        kernel.check(CASES[2])


PROBE = '''
#include <cstdint>
#include "machine.h"
#include "hopper.h"
#include "{tile}"
extern "C" unsigned place(int swizzle, int row, int byte) {{
    switch (swizzle) {{
        case 0: return Layout<0>::place(row, byte);
        case 32: return Layout<32>::place(row, byte);
        case 64: return Layout<64>::place(row, byte);
        default: return Layout<128>::place(row, byte);
    }}
}}
extern "C" unsigned swizzled(unsigned address, int row_bytes) {{ return emulation::swizzled(address, row_bytes); }}
'''


@emulated
def test_the_printed_places_are_those_of_kernel_and_emulation(tmp_path: Path) -> None:
    file = tmp_path / "probe.cu"
    file.write_text(PROBE.format(tile=BENCH / "kernels/cuda/wgmma_tile/tile.h"))
    library = HostKernel("wgmma_tile/swizzle_32", tmp_path, kernels=BENCH / "kernels", file=file).library
    library.swizzled.argtypes = [ctypes.c_uint32, ctypes.c_int]
    for swizzle in layout.SWIZZLES:
        for row in range(64):
            for byte in range(0, swizzle or 32, 16):
                assert layout.place(swizzle, row, byte) == library.place(swizzle, row, byte)
                if swizzle:
                    assert layout.place(swizzle, row, byte) == library.swizzled(row * swizzle + byte, swizzle)


@emulated
def test_the_printed_accumulators_are_those_of_the_emulation(tmp_path: Path) -> None:
    """The kernel writes thread and register in place of its sums."""
    text = (BENCH / "kernels/cuda/wgmma_tile/tile.h").read_text()
    before = "    float* const c = tiles.c"
    assert before in text
    text = text.replace(before, "    for (int i = 0; i < kN / 2; ++i) sums[i] = threadIdx.x * 1000.0f + i;\n" + before)
    (tmp_path / "tile.h").write_text(text)
    file = tmp_path / "map.cu"
    file.write_text((BENCH / "kernels/cuda/wgmma_tile/swizzle_128.cu").read_text())
    kernel = HostKernel("wgmma_tile/swizzle_128", tmp_path, kernels=BENCH / "kernels", file=file)
    case = CASES[1]
    data = kernel.reference.generate_input(**case, seed=1, device="cpu")
    (c,) = kernel.run(case, data)
    wanted = torch.tensor([[thread * 1000.0 + register for thread, register in (
        layout.accumulator(row, column) for column in range(64))] for row in range(64)])
    assert torch.equal(c[0], wanted)


@pytest.mark.parametrize("operand", ["d", "a", "shared"])
def test_the_maps_print_and_name_every_place_once(operand: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert layout.main(["half", "64", "--operand", operand]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 65
    cells = [cell for line in lines[1:] for cell in line.split()[1:]]
    assert len(set(cells)) == len(cells)
