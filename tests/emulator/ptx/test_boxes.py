# SPDX-License-Identifier: MIT
"""Boxes that lie outside of their tensor: zeros, and by which maps a GPU touches what lies there all the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.emulator.ptx.driver import Array, Cuda, Refused
from tests.emulator.ptx.test_faults import BULK

POSITIONS, WIDTH = 8, 32       # of a tensor of 32-bit numbers: two sequences, one behind the other
LENGTH = POSITIONS // 2
BOX = (WIDTH, 2, 1)
LOAD = BULK.replace(".param .u64 pout)", ".param .u64 pout, .param .u32 px, .param .u32 py)").replace(
    "mov.u32 %r0, %tid.x;", "mov.u32 %r0, %tid.x; mov.u32 %r8, 0; ld.param.u32 %r6, [px]; "
    "ld.param.u32 %r7, [py];").replace(
    "_, [%r5], 128;", "_, [%r5], 256;").replace(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r5];",
    "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r1], [%rd0, {%r8, %r6, %r7}], [%r5];")


@pytest.fixture
def tensor() -> Array:
    storage = np.zeros(POSITIONS * WIDTH + 4, np.uint32)
    at = -storage.ctypes.data % 16 // 4
    found = storage[at:at + POSITIONS * WIDTH].reshape(POSITIONS, WIDTH)
    found[:] = np.arange(1, found.size + 1).reshape(found.shape)
    return found


def loaded(cuda: Cuda, tensor: Array, described: Array, x: int, y: int) -> Array:
    """The first row of the box."""
    out = np.full(WIDTH, 7, np.uint32)
    with cuda.known(tensor):
        cuda.launch(LOAD, [described, out, x, y], shared=2048)
    assert json.loads(cuda.taken("findings")) == []
    return out


def packed(cuda: Cuda, tensor: Array) -> Array:
    """As for packed sequences (kernels/cuda/common/tensor_map.h): two dimensions of positions, whose places add up."""
    pitch = tensor.strides[0]
    return cuda.tensor_map(tensor.ctypes.data - POSITIONS * pitch, 2, (WIDTH, POSITIONS, POSITIONS + 1),
                           (pitch, pitch), BOX)


def test_a_box_of_packed_sequences_ends_with_its_own(cuda: Cuda, tensor: Array) -> None:
    described = packed(cuda, tensor)
    for end in (LENGTH, POSITIONS):
        for row in range(LENGTH):
            first = loaded(cuda, tensor, described, POSITIONS - LENGTH + row, end)
            assert np.array_equal(first, tensor[end - LENGTH + row])
    # Behind the first sequence lies the second.
    assert not loaded(cuda, tensor, described, POSITIONS, LENGTH).any()


def test_a_box_behind_the_last_of_packed_sequences_is_refused(cuda: Cuda, tensor: Array) -> None:
    with pytest.raises(Refused, match="a GPU was seen to touch what lies there") as refused:
        loaded(cuda, tensor, packed(cuda, tensor), POSITIONS, POSITIONS)
    assert [each["check"] for each in refused.value.findings] == ["bounds"]


def test_a_box_behind_a_dense_tensor_is_zeros(cuda: Cuda, tensor: Array) -> None:
    pitch = tensor.strides[0]
    described = cuda.tensor_map(tensor.ctypes.data, 2, (WIDTH, LENGTH, 2), (pitch, LENGTH * pitch), BOX)
    assert np.array_equal(loaded(cuda, tensor, described, 1, 1), tensor[LENGTH + 1])
    assert not loaded(cuda, tensor, described, LENGTH, 1).any()


@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
@pytest.mark.parametrize("start", [0, 128, 640, 896])
def test_a_swizzle_goes_by_addresses(cuda: Cuda, tensor: Array, swizzle: int, start: int) -> None:
    """A box may start at any multiple of 128, though the pattern comes again after 256, 512 or 1024 bytes only."""
    columns = [WIDTH, 8, 16, 32][swizzle]      # the pattern's rows are 32, 64 and 128 bytes long
    described = cuda.tensor_map(tensor.ctypes.data, 2, (WIDTH, POSITIONS, 1), (4 * WIDTH, 4 * WIDTH * POSITIONS),
                                (columns, 64 // columns, 1), swizzle)
    kernel = LOAD.replace("mov.u32 %r1, dynamic;", f"mov.u32 %r1, dynamic; add.u32 %r1, %r1, {start};")
    out = np.zeros(32, np.uint32)
    with cuda.known(tensor):
        cuda.launch(kernel, [described, out, 0, 0], shared=2048)
    bits = [0, 1, 3, 7][swizzle]               # of the address, from bit 7 on, that chunks of 16 bytes are exchanged by
    chunk = np.arange(32) // 4 ^ (start // 128 & bits)
    assert out.tolist() == tensor[:64 // columns, :columns].reshape(-1)[chunk * 4 + np.arange(32) % 4].tolist()
