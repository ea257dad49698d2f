# SPDX-License-Identifier: MIT
"""What a launch is counted to have done: small kernels, counted by hand, and twins that lose nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.emulator.ptx.driver import Array, Cuda, Refused
from tests.emulator.ptx.test_checks import EXCHANGE, PRODUCT
from tests.emulator.ptx.test_faults import BULK, HEAD, STORE, THROUGH

NOTHING = {"bytes": 0, "tensor_bytes": 0, "bulk_bytes": 0, "cycles": 0, "conflict_free_cycles": 0,
           "conflict_cycles": 0, "conflicts": []}
# Two products of 16 x 8 x 16 in a loop of a warp.
MMA = HEAD + """.reg .b32 %a<4>; .reg .b32 %b<2>; .reg .f32 %d<4>; mov.u32 %r5, 0;
AGAIN: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1},
{%d0, %d1, %d2, %d3}; add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 2; @%p0 bra AGAIN; ret; }"""
# Each lane stores where the second parameter says: so many bytes from lane to lane.
STRIDED = """.file 1 "strided.cu"
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 pin, .param .u32 pstride) {{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .b32 %v<4>; mov.u32 %r0, %tid.x;
ld.param.u64 %rd0, [pin]; ld.param.u32 %r1, [pstride]; mul.lo.u32 %r2, %r0, %r1; cvt.u64.u32 %rd1, %r2;
add.s64 %rd2, %rd0, %rd1; mov.u32 %r3, dynamic; add.u32 %r3, %r3, %r2; mov.u32 %v0, 0; mov.u32 %v1, 0;
mov.u32 %v2, 0; mov.u32 %v3, 0;
.loc 1 17 3
{}
ret; }}"""


@pytest.fixture
def counting(cuda: Cuda) -> Iterator[Cuda]:
    cuda.set(counters=1)
    cuda.taken("counters")
    yield cuda
    cuda.set(counters=0)


def words(count: int) -> Array:
    """Zeros that begin with a sector."""
    whole = np.zeros(count + 8, np.uint32)
    at = -whole.ctypes.data % 32 // 4
    return whole[at:at + count]


def counted(cuda: Cuda, kernel: str, **shape: int) -> dict[str, Any]:
    given, out = words(64), words(64)
    given[:] = np.arange(1, 65)
    cuda.launch(kernel, [given, out], shared=4096, **shape)
    (found,) = json.loads(cuda.taken("counters"))
    assert isinstance(found, dict)
    return found


def strided(cuda: Cuda, instruction: str, stride: int) -> dict[str, Any]:
    cuda.launch(STRIDED.format(instruction), [words(2048), stride], shared=8192)
    (found,) = json.loads(cuda.taken("counters"))
    assert isinstance(found, dict)
    return found


def test_instructions_by_class(counting: Cuda) -> None:
    """The head's four moves, four sums and one shift, then what THROUGH itself does, of each of two warps."""
    found = counted(counting, THROUGH, block=64)
    assert {name: count for name, count in found["classes"].items() if count} == {
        "move": 8, "integer": 8, "bits": 2, "async_copy": 2, "wait": 4, "shared_load": 2, "store": 2, "branch": 2}
    assert (found["instructions"], found["workgroups"], found["waves"]) == (30, 1, 2)
    assert (found["kernel"], found["grid"], found["block"]) == ("k", [1, 1, 1], [64, 1, 1])
    assert found["evidence"] == "emulated"
    assert not any("modelled" in key or "seconds" in key for key in found)
    assert found["tensor_flops"] == 0
    assert found["shared"] == NOTHING | {"bytes": 512, "cycles": 4, "conflict_free_cycles": 4}
    assert found["global"] == {"requested_bytes": 512, "read_bytes": 256, "written_bytes": 256, "atomic_bytes": 0,
                               "sectors": 16, "sector_bytes": 512, "uncoalesced": []}


def test_blocks_and_branches_count_as_often_as_they_run(counting: Cuda) -> None:
    """A barrier that is waited for counts once a warp; a loop's branch each time; all of it in each block."""
    one, three = (counted(counting, EXCHANGE, block=64, grid=grid) for grid in (1, 3))
    assert one["classes"]["barrier"] == 4
    assert (three["workgroups"], three["waves"]) == (3, 6)
    assert three["classes"] == {name: 3 * count for name, count in one["classes"].items()}
    loop = counted(counting, MMA)
    assert (loop["classes"]["branch"], loop["classes"]["compare"], loop["classes"]["tensor"]) == (2, 2, 2)


def test_products_of_a_warp(counting: Cuda) -> None:
    found = counted(counting, MMA, block=64)
    assert found["tensor"] == [{"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "executed": 4,
                                "flops": 4 * 2 * 16 * 8 * 16}]
    assert found["tensor_flops"] == 4 * 2 * 16 * 8 * 16


def test_products_of_a_warpgroup(counting: Cuda) -> None:
    """Four warps issue one product of 64 x 8 x 16, which reads 64 rows of A and 8 of B, 32 bytes each."""
    found = counted(counting, PRODUCT, block=128)
    assert [(each["executed"], each["flops"]) for each in found["tensor"]] == [(4, 2 * 64 * 8 * 16)]
    assert found["shared"]["tensor_bytes"] == 64 * 32 + 8 * 32
    assert found["classes"]["fence"] == 8        # fence.proxy.async and wgmma.fence


def test_bulk_copies(counting: Cuda) -> None:
    inwards, out = counted(counting, BULK), counted(counting, STORE)
    assert inwards["bulk"] == {"copies": 1, "read_bytes": 128, "written_bytes": 0}
    assert out["bulk"] == {"copies": 1, "read_bytes": 0, "written_bytes": 128}
    assert inwards["shared"]["bulk_bytes"] == out["shared"]["bulk_bytes"] == 128
    assert inwards["shared"]["bytes"] == 128                       # what lanes load
    assert inwards["global"]["written_bytes"] == 128
    assert inwards["global"]["read_bytes"] == 0


@pytest.mark.parametrize(("instruction", "stride", "cycles", "free"), [
    ("st.shared.u32 [%r3], %v0;", 4, 1, 1),
    ("st.shared.u32 [%r3], %v0;", 0, 1, 1),              # one word of all lanes
    ("st.shared.u32 [%r3], %v0;", 8, 2, 1),
    ("st.shared.u32 [%r3], %v0;", 128, 32, 1),
    ("st.shared.u32 [%r3], %v0;", 132, 1, 1),            # its twin with a padded pitch
    ("st.shared.u8 [%r3], %v0;", 1, 1, 1),               # four lanes share a word
    ("st.shared.v2.u32 [%r3], {%v0, %v1};", 8, 2, 2),    # half a warp at a time
    ("st.shared.v2.u32 [%r3], {%v0, %v1};", 16, 4, 2),
    ("st.shared.v4.u32 [%r3], {%v0, %v1, %v2, %v3};", 16, 4, 4),
    ("st.shared.v4.u32 [%r3], {%v0, %v1, %v2, %v3};", 32, 8, 4),
    ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%v0, %v1, %v2, %v3};", 128, 32, 4),
    ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%v0, %v1, %v2, %v3};", 144, 4, 4),
    ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%v0};", 128, 8, 1),
    ("red.shared.add.u32 [%r3], 1;", 4, 1, 1),
    ("red.shared.add.u32 [%r3], 1;", 0, 32, 1),          # one after the other
    ("cp.async.ca.shared.global [%r3], [%rd0], 16;", 16, 4, 4),
    ("cp.async.ca.shared.global [%r3], [%rd0], 16;", 128, 32, 4),
])
def test_bank_conflicts(counting: Cuda, instruction: str, stride: int, cycles: int, free: int) -> None:
    found = strided(counting, instruction, stride)["shared"]
    assert (found["cycles"], found["conflict_free_cycles"], found["conflict_cycles"]) == (cycles, free, cycles - free)
    assert [(each["file"], each["line"], each["cycles"], each["executed"]) for each in found["conflicts"]] == (
        [("strided.cu", 17, cycles, 1)] if cycles > free else [])


@pytest.mark.parametrize(("instruction", "stride", "asked", "sectors"), [
    ("ld.global.u32 %v0, [%rd2];", 4, 128, 4),
    ("ld.global.u32 %v0, [%rd2+16];", 4, 128, 5),        # not at a sector's beginning
    ("ld.global.u32 %v0, [%rd2];", 32, 128, 32),
    ("ld.global.u32 %v0, [%rd2];", 0, 128, 1),           # one word of all lanes wastes nothing
    ("ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%rd2];", 16, 512, 16),
    ("ld.u32 %v0, [%rd2];", 64, 128, 32),                # by a generic address
    ("st.global.u16 [%rd2], %v0;", 2, 64, 2),
    ("atom.global.add.u32 %v0, [%rd2], 1;", 32, 128, 32),
    ("cp.async.ca.shared.global [%r3], [%rd2], 16;", 16, 512, 16),
    ("cp.async.ca.shared.global [%r3], [%rd2], 16;", 32, 512, 32),
])
def test_sectors_of_global_memory(counting: Cuda, instruction: str, stride: int, asked: int, sectors: int) -> None:
    found = strided(counting, instruction, stride)["global"]
    assert (found["requested_bytes"], found["sectors"], found["sector_bytes"]) == (asked, sectors, 32 * sectors)
    wasted = 32 * sectors > asked
    assert [(each["file"], each["line"], each["requested_bytes"], each["sector_bytes"], each["lanes"])
            for each in found["uncoalesced"]] == ([("strided.cu", 17, asked, 32 * sectors, 32)] if wasted else [])
    kind = "atomic" if "atom" in instruction else "written" if "st." in instruction else "read"
    assert found[f"{kind}_bytes"] == asked


def test_shared_memory_by_a_generic_address(counting: Cuda) -> None:
    found = strided(counting, "cvta.shared.u64 %rd3, dynamic; add.s64 %rd3, %rd3, %rd1; st.u32 [%rd3], %v0;", 8)
    assert (found["shared"]["bytes"], found["shared"]["cycles"], found["global"]["requested_bytes"]) == (128, 2, 0)


def test_only_a_launch_that_ends_well_is_counted_and_only_on_demand(counting: Cuda) -> None:
    with pytest.raises(Refused):
        counted(counting, THROUGH.replace("[%rd4], %r4", "[%rd4+4096], %r4"))
    assert json.loads(counting.taken("counters")) == []
    counting.set(counters=0)
    counting.launch(THROUGH, [np.zeros(64, np.uint32), np.zeros(64, np.uint32)], shared=4096)
    assert json.loads(counting.taken("counters")) == []


@pytest.mark.parametrize("schedule", ["eager", "random:3"])
def test_counts_do_not_depend_on_the_schedule(counting: Cuda, schedule: str) -> None:
    late = counted(counting, EXCHANGE, block=64, grid=4)
    counting.set(schedule=schedule)
    assert counted(counting, EXCHANGE, block=64, grid=4) == late
