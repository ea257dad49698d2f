# SPDX-License-Identifier: MIT
"""Memory that kernels allocate: what nvcc makes of malloc and new, and what is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import __main__ as command
from tests.emulator.ptx.driver import Array, Cuda, Refused
from tests.emulator.ptx.test_programs import compiled

PROGRAM = Path(__file__).with_name("heap.cu")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(PROGRAM, tmp_path_factory.mktemp("heap"))


@pytest.mark.parametrize("schedule", ["late", pytest.param("random:3", marks=pytest.mark.slow)])
def test_a_program_that_allocates(program: Path, capfd: pytest.CaptureFixture[str], schedule: str) -> None:
    """The parts are right, the heap is as large as its limit, and no check says anything."""
    assert command.main(["emulate", "--gpu", "H100", "--schedule", schedule, "--", str(program)]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        "lists: ok", "shapes: ok", "kept: ok", "again: ok",
        "8388608 bytes: 8 times 1048576, one more 1, too many 0", "set: cudaErrorInvalidValue",
        "set: cudaSuccess", "3000 bytes: 2 times 1000, one more 1, too many 0", "last: cudaSuccess"], err


def test_a_second_delete_is_told_with_its_line(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["emulate", "--gpu", "L4", "--json", "--", str(program), "twice"]) == 1
    printed = capfd.readouterr().out
    (finding,) = json.loads(printed[printed.index("{"):])["findings"]
    line = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "delete *out" in text)
    assert (finding["check"], finding["line"]) == ("heap", line)
    assert "freed before is freed once more" in finding["message"]


# Each lane has ten bytes, of which it writes the last one.
KERNEL = """
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 address);
.visible .entry k(.param .u64 pout) {
.reg .b32 %r<4>; .reg .b64 %rd<8>; ld.param.u64 %rd0, [pout]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
add.u64 %rd2, %rd0, %rd1;
{ .param .b64 n; .param .b64 r; st.param.b64 [n], 10; call (r), malloc, (n); ld.param.b64 %rd3, [r]; }
add.u64 %rd4, %rd3, 8;
st.global.u8 [%rd3+9], %r0; ld.u8 %r1, [%rd3+9];
{ .param .b64 p; st.param.b64 [p], %rd3; call free, (p); }
LAST: st.global.u32 [%rd2], %r1; ret; }"""


@dataclass(frozen=True)
class Fault:
    """``wrong`` in place of ``right`` makes ``check`` speak, with ``error``, in these ``words``."""

    right: str
    wrong: str
    check: str
    error: int
    words: str


MORE = "{ .param .b64 n; .param .b64 r; st.param.b64 [n], 10; call (r), malloc, (n); } ld.u8 %r1, [%rd3+9]; LAST:"
AGAIN = "{ .param .b64 p; st.param.b64 [p], %rd3; call free, (p); } LAST:"
FAULTS = {
    "a store behind the last byte": Fault("st.global.u8 [%rd3+9]", "st.global.u8 [%rd3+10]", "bounds", 700,
                                          "0 bytes behind memory of malloc"),
    "a store between two allocations": Fault("st.global.u8 [%rd3+9]", "st.global.u8 [%rd3+40]", "bounds", 700,
                                             "lane 0: 1 byte at"),
    "a load that reaches behind it": Fault("ld.u8 %r1, [%rd3+9]", "ld.u32 %r1, [%rd3+8]", "bounds", 700,
                                           "8 bytes into memory of malloc"),
    "a load before the first byte": Fault("ld.u8 %r1, [%rd3+9]", "ld.u8 %r1, [%rd3+-1]", "bounds", 700,
                                          "1 bytes before memory of malloc"),
    "a load after free": Fault("LAST:", "ld.global.u8 %r1, [%rd3+9];", "bounds", 700,
                               "9 bytes into memory of malloc (0x"),
    "a load after free, and malloc of as much": Fault("LAST:", MORE, "bounds", 700, "lane 0: 1 byte at"),
    "a second free": Fault("LAST:", AGAIN, "heap", 719, "freed before is freed once more"),
    "a free of an array": Fault("[p], %rd3", "[p], %rd2", "heap", 719, "free of what malloc has not given"),
    "a free within": Fault("[p], %rd3", "[p], %rd4", "heap", 719, "8 bytes into memory of malloc"),
}


def ran(cuda: Cuda, kernel: str) -> tuple[Array, list[dict[str, Any]]]:
    out = np.zeros(32, np.uint32)
    cuda.launch(kernel, [out])
    return out, json.loads(cuda.taken("findings"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_twin_is_not(cuda: Cuda, name: str) -> None:
    fault = FAULTS[name]
    assert KERNEL.count(fault.right) == 1
    out, findings = ran(cuda, KERNEL)
    assert (out.tolist(), findings) == (list(range(32)), [])
    with pytest.raises(Refused) as refused:
        ran(cuda, KERNEL.replace(fault.right, fault.wrong))
    (finding,) = refused.value.findings
    assert (finding["check"], refused.value.code) == (fault.check, fault.error)
    assert fault.words in finding["message"]
    assert ("which was freed" in finding["message"]) == name.startswith("a load after free")


def test_memory_that_nobody_has_written(cuda: Cuda) -> None:
    """Its bits are all set. A load of which a part has been written is none: that part may be padding."""
    unwritten = KERNEL.replace("st.global.u8 [%rd3+9], %r0;", "")
    out, findings = ran(cuda, unwritten)
    assert out.tolist() == [0xFF] * 32
    assert [each["check"] for each in findings] == ["uninitialised"]
    assert "9 bytes into memory of malloc" in findings[0]["message"]
    out, findings = ran(cuda, KERNEL.replace("ld.u8 %r1, [%rd3+9]", "ld.global.u16 %r1, [%rd3+8]"))
    assert (out.tolist(), findings) == ([i << 8 | 0xFF for i in range(32)], [])
    cuda.set(checks="-uninitialised")
    try:
        assert ran(cuda, unwritten)[1] == []
    finally:
        cuda.set(checks="all")


# Each lane keeps its memory for other launches, which write it, read it, and allocate nothing.
FIRST = KERNEL[:KERNEL.index("add.u64 %rd4")].replace("mul.wide.u32 %rd1, %r0, 4", "mul.wide.u32 %rd1, %r0, 8") + (
    "st.global.u8 [%rd3+9], %r0; st.global.u64 [%rd2], %rd3; ret; }")
SECOND = """.visible .entry k(.param .u64 pout) { .reg .b32 %r<4>; .reg .b64 %rd<8>; ld.param.u64 %rd0, [pout];
mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 8; add.u64 %rd2, %rd0, %rd1; ld.global.u64 %rd3, [%rd2];
ld.global.u8 %r1, [%rd3+9]; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd2], %rd4; ret; }"""


WRITE = SECOND.replace("ld.global.u8 %r1, [%rd3+9]; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd2], %rd4;",
                       "st.global.u8 [%rd3+9], %r0;")


@pytest.mark.parametrize(("checks", "written", "found"), [
    ("all", True, []), ("all", False, ["uninitialised"]), ("none", True, []), ("none", False, [])])
def test_what_an_earlier_launch_has_written(cuda: Cuda, checks: str, written: bool, found: list[str]) -> None:
    """Also where nobody looked what it wrote: then nothing is said of its memory."""
    pointers = np.zeros(32, np.uint64)
    cuda.set(checks=checks)
    try:
        cuda.launch(FIRST if written else FIRST.replace("st.global.u8 [%rd3+9], %r0;", ""), [pointers])
    finally:
        cuda.set(checks="all")
    assert len(set(pointers.tolist())) == 32
    assert not (pointers % 16).any()
    cuda.launch(SECOND, [pointers])
    assert [each["check"] for each in json.loads(cuda.taken("findings"))] == found
    assert pointers.tolist() == (list(range(32)) if written else [0xFF] * 32)


def test_a_launch_without_the_check_may_have_written(cuda: Cuda) -> None:
    pointers = np.zeros(32, np.uint64)
    cuda.launch(FIRST.replace("st.global.u8 [%rd3+9], %r0;", ""), [pointers])
    cuda.set(checks="none")
    try:
        cuda.launch(WRITE, [pointers])
    finally:
        cuda.set(checks="all")
    cuda.launch(SECOND, [pointers])
    assert (pointers.tolist(), json.loads(cuda.taken("findings"))) == (list(range(32)), [])
