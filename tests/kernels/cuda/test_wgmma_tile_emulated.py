# SPDX-License-Identifier: MIT
"""The workbench's wgmma tiles on an emulated H100: faults of their layouts must show; and the printed maps are true."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel, copied
from tests.kernels.cuda.planting import Fault

BENCH = Path(__file__).resolve().parents[3] / "workbench"
CASE = {"n": 64, "k": 64, "type": "bfloat", "repeat": 2, "pattern": "random"}

spec = importlib.util.spec_from_file_location("layout", BENCH / "layout.py")
assert spec is not None
assert spec.loader is not None
layout = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layout)

LAYOUT, TILE = "wgmma_tile/layout.h", "wgmma_tile/tile.h"
FAULTS = {
    "swizzle_32": {
        "another swizzle": Fault(LAYOUT, "address >> 7 & kMask", "address >> (FAULT ? 8 : 7) & kMask"),
        "another layout": Fault(
            LAYOUT, "return wgmma_operand_32(shared);",
            "return FAULT ? wgmma_operand_plain(shared, 128, 256) : wgmma_operand_32(shared);"),
        "a write behind the fence": Fault(
            TILE, "fence_async_shared();  // what threads wrote, the tensor cores read",
            "fence_async_shared(); if (FAULT && threadIdx.x == 5) b_shared[8] ^= 0x40;", "shared-race"),
    },
    "b_transposed": {
        "another swizzle": Fault(LAYOUT, "address >> 7 & 7", "address >> (FAULT ? 8 : 7) & 7"),
    },
    "b_transposed_none": {
        "offsets as in the swizzled layouts": Fault(
            LAYOUT, "kCount * 16, 128);", "FAULT ? 128 : kCount * 16, FAULT ? kCount * 16 : 128);", "bounds"),
    },
}


def planted(variant, root):
    kernel = EmulatedKernel(f"wgmma_tile/{variant}", root=root)
    return kernel, lambda _fault: kernel.check(CASE)


@pytest.mark.parametrize("variant", FAULTS)
def test_faults_are_noticed(variant, tmp_path):
    faults = FAULTS[variant]
    planting.noticed(planting.outcomes(tmp_path, faults, planted, variant, home=BENCH), faults)


PLACES = '''
extern "C" unsigned place(int swizzle, int row, int byte) {
    switch (swizzle) {
        case 0: return Layout<0>::place(row, byte);
        case 32: return Layout<32>::place(row, byte);
        case 64: return Layout<64>::place(row, byte);
        default: return Layout<128>::place(row, byte);
    }
}
extern "C" unsigned transposed(int swizzle, int row, int k) {
    return swizzle == 0 ? TransposedPanels<0, 128, 192>::place(row, k) : TransposedPanels<128, 128, 192>::place(row, k);
}
'''


def test_the_printed_maps_are_those_of_the_kernel(tmp_path):
    """Its places in shared memory, which are right as its products are; and its accumulators: it writes thread and
    register in place of its sums."""
    text = "    float* const c = tiles.c"
    root = copied(
        tmp_path,
        (LAYOUT, "__device__ __forceinline__ uint32_t place", "__host__ __device__ __forceinline__ uint32_t place"),
        (TILE, "struct Tiles {", f"{PLACES}struct Tiles {{"),
        (TILE, text, f"    for (int i = 0; i < kN / 2; ++i) sums.sums[0][i] = threadIdx.x * 1000.0f + i;\n{text}"),
        home=BENCH,
    )
    kernel = EmulatedKernel("wgmma_tile/swizzle_128", root=root)
    library: ctypes.CDLL = kernel.library()
    for swizzle in layout.SWIZZLES:
        for row in range(64):
            for byte in range(0, swizzle or 32, 16):
                assert layout.place(swizzle, row, byte) == library.place(swizzle, row, byte)
    for swizzle in (0, 128):
        places = [(row, k) for row in range(192) for k in range(64)]
        printed = [layout.place_transposed(swizzle, row, k, 192, 64) for row, k in places]
        assert printed == [library.transposed(swizzle, row, k) for row, k in places]
        assert len(set(printed)) == len(places)
    (c,) = kernel.run(CASE, kernel.reference.generate_input(**CASE, seed=1, device="cpu"))
    wanted = torch.tensor([[thread * 1000.0 + register for thread, register in (
        layout.accumulator(row, column) for column in range(64))] for row in range(64)])
    assert torch.equal(c[0], wanted)


@pytest.mark.parametrize("operand", ["d", "a", "shared", "transposed"])
def test_the_maps_print_and_name_every_place_once(operand: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert layout.main(["half", "64", "--operand", operand]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (17 if operand == "transposed" else 65)
    cells = [cell for line in lines[1:] for cell in line.split()[1:]]
    assert len(set(cells)) == len(cells)
