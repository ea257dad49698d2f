# SPDX-License-Identifier: MIT
"""Reductions by bulk copies: of bytes in a row and of boxes of tensors, element by element."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.emulator.ptx.driver import Array, Cuda, Refused
from tests.emulator.ptx.test_faults import HEAD, STORE

OPERATIONS = {
    "add.u32": (np.uint32, np.add), "add.s32": (np.int32, np.add), "min.s32": (np.int32, np.minimum),
    "max.u32": (np.uint32, np.maximum), "and.b32": (np.uint32, np.bitwise_and), "or.b32": (np.uint32, np.bitwise_or),
    "xor.b64": (np.uint64, np.bitwise_xor), "add.u64": (np.uint64, np.add), "min.u64": (np.uint64, np.minimum),
    "inc.u32": (np.uint32, lambda old, most: np.where(old >= most, 0, old + 1).astype(np.uint32)),
    "dec.u32": (np.uint32, lambda old, most: np.where((old == 0) | (old > most), most, old - 1).astype(np.uint32)),
    "add.f32": (np.float32, np.add), "add.noftz.f16": (np.float16, np.add), "add.f64": (np.float64, np.add),
}
COPY = "cp.async.bulk.global.shared::cta.bulk_group"


def numbers(kind: type, seed: int) -> Array:
    """128 bytes of them; floats are small integers, whose sums are exact."""
    random = np.random.default_rng(seed)
    if np.issubdtype(kind, np.floating):
        return random.integers(-9, 10, 128 // np.dtype(kind).itemsize).astype(kind)
    return random.integers(0, 256, 128).astype(np.uint8).view(kind)


@pytest.mark.parametrize("name", OPERATIONS)
def test_bytes_in_a_row(cuda: Cuda, name: str) -> None:
    kind, wanted = OPERATIONS[name]
    given, old = numbers(kind, 1), numbers(kind, 2)
    old[:4] = given[:4]
    out = old.copy()
    kernel = STORE.replace(COPY, f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}")
    cuda.launch(kernel, [given.view(np.uint32), out], shared=4096)
    assert json.loads(cuda.taken("findings")) == []
    with np.errstate(over="ignore"):
        assert np.array_equal(out, wanted(old, given))


@pytest.mark.parametrize("name", ["min.f16", "add.bf16x2", "cas.b32"])
def test_what_there_is_none_of_is_refused(cuda: Cuda, name: str) -> None:
    kernel = STORE.replace(COPY, f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}")
    with pytest.raises(Refused, match="is not supported"):
        cuda.launch(kernel, [np.zeros(32, np.uint32), np.zeros(32, np.uint32)], shared=4096)


def test_two_blocks_add_to_one_row(cuda: Cuda) -> None:
    """Reductions of one word need no order."""
    given, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    kernel = STORE.replace(COPY, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32")
    cuda.launch(kernel, [given, out], shared=4096, grid=8)
    assert np.array_equal(out, 8 * given)
    assert json.loads(cuda.taken("findings")) == []


BOX = HEAD.replace(".param .u64 pout)", ".param .u64 pmap)").replace("[pout]", "[pmap]") + """
ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; fence.proxy.async; bar.warp.sync 0xffffffff;
setp.ne.u32 %p0, %r0, 0; @%p0 bra END; mov.u32 %r5, 4; mov.u32 %r6, 2;
OPCODE [%rd1, {%r5, %r6}], [%r1]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END: ret; }"""


def tensor_map(cuda: Cuda, tensor: Array, kind: int, box: tuple[int, int]) -> Array:
    """Of a matrix."""
    rows, columns = tensor.shape
    return cuda.tensor_map(tensor.ctypes.data, kind, (columns, rows), tensor.strides[:1], box)


@pytest.mark.parametrize(("opcode", "wanted"), [
    ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group", np.add),
    ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.max.tile.bulk_group", np.maximum),
    ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", lambda _old, given: given),
])
def test_a_box_that_hangs_over_the_edge(cuda: Cuda, opcode: str, wanted: np.ufunc) -> None:
    """Columns 4 to 11 of 8, rows 2 to 5 of 5: what lies outside of the tensor is left out."""
    storage = np.zeros(5 * 8 + 4, np.uint32)
    at = -storage.ctypes.data % 16 // 4
    old = storage[at:at + 40].reshape(5, 8)
    old[:] = np.random.default_rng(1).integers(0, 100, (5, 8))
    given = np.random.default_rng(2).integers(0, 100, 32).astype(np.uint32)
    right = old.copy()
    right[2:, 4:] = wanted(old[2:, 4:], given.reshape(4, 8)[:3, :4])
    described = tensor_map(cuda, old, 2, (8, 4))
    with cuda.known(old):
        cuda.launch(BOX.replace("OPCODE", opcode), [given, described], shared=4096)
    assert np.array_equal(old, right)
    assert json.loads(cuda.taken("findings")) == []


def test_a_reduction_that_the_tensor_s_type_has_not(cuda: Cuda) -> None:
    tensor = np.zeros((4, 16), np.uint8)
    described = tensor_map(cuda, tensor, 0, (16, 4))
    with cuda.known(tensor), pytest.raises(Refused, match="reduction") as refused:
        cuda.launch(BOX.replace("OPCODE", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"),
                    [np.zeros(32, np.uint32), described], shared=4096)
    assert [each["check"] for each in refused.value.findings] == ["tensor-map"]


# Vectors of elements, each an atomic by itself ------------------------------------------------------------------------

VECTOR = """.visible .entry k(.param .u64 pout, .param .u64 pold) {{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd0, [pout]; ld.param.u64 %rd1, [pold];
mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %r1, %r0; mov.b32 %r2, 0f3F000000; mov.b32 %r3, 0fBF800000; mov.b32 %r4, 0f40400000;
{body}
ret; }}"""


def test_a_vector_of_floats_is_added(cuda: Cuda) -> None:
    """32 lanes add (lane, 1/2, -1, 3) to one place; the results are what stood there before, element by element."""
    out, old = np.full(4, 10, np.float32), np.zeros((32, 4), np.float32)
    cuda.launch(VECTOR.format(body="""
        atom.global.gpu.acq_rel.add.v4.f32 {%r5, %r6, %r7, %r8}, [%rd0+0], {%r1, %r2, %r3, %r4};
        mul.wide.u32 %rd2, %r0, 16; add.u64 %rd3, %rd1, %rd2; st.global.v4.b32 [%rd3], {%r5, %r6, %r7, %r8};
        red.global.add.v2.f32 [%rd0+8], {%r2, %r2};"""), [out, old])
    assert out.tolist() == [10 + 496, 10 + 16, 10 - 32 + 16, 10 + 96 + 16]
    assert np.sort(old[:, 1]).tolist() == [10 + lane / 2 for lane in range(32)]
    assert np.sort(old[:, 2]).tolist() == [10 - lane for lane in range(31, -1, -1)]


def test_a_vector_must_be_aligned_as_a_whole(cuda: Cuda) -> None:
    with pytest.raises(Refused, match="not a multiple of 16"):
        cuda.launch(VECTOR.format(body="red.global.add.v4.f32 [%rd0+4], {%r1, %r2, %r3, %r4};"),
                    [np.zeros(16, np.float32), np.zeros(1)])
