# SPDX-License-Identifier: MIT
"""Calls of device functions: what nvcc and clang make of them, what PTX by hand may do besides, and what is wrong."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from backends import __main__ as command
from backends.emulator import build
from tests.emulator.ptx.driver import Array, Cuda, Refused
from tests.emulator.ptx.test_programs import compiled

PROGRAM = Path(__file__).with_name("calls.cu")
PARTS = ["structures", "widths", "recursion", "each_other", "deep", "pointers", "returns", "indirect",
         "virtual_functions", "together", "ended", "locked"]


@pytest.mark.parametrize("flags", ["-O2", pytest.param("-G", marks=pytest.mark.slow)])
def test_a_program_with_calls(tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: str) -> None:
    """-G: nothing is inlined, and every variable is in local memory."""
    program = compiled(PROGRAM, tmp_path, flags)
    assert command.main(["emulate", "--gpu", "H100", "--", str(program)]) == 0
    printed = capfd.readouterr().out.splitlines()
    assert printed == [*(f"{part}: ok" for part in PARTS), "thread 10 says 55", "last: cudaSuccess"]


C = """
typedef struct { int values[6]; double weight; } Large;
#define APART __attribute__((noinline))
APART int picked(Large given, int i) {
    volatile Large* at = &given;
    at->values[i] += 2;
    return at->values[i] + (int)given.weight;
}
APART Large made(int i) {
    Large all;
    for (int j = 0; j < 6; ++j) all.values[j] = i * j;
    all.weight = i;
    return all;
}
APART int narrow(signed char a, short b, _Bool c) { return a + b * 2 + c; }
APART int power(int base, int n) { return n ? base * power(base, n - 1) % 1009 : 1; }
APART int less(int a, int b) { return a - b; }
typedef int Function(int, int);
__attribute__((nvptx_kernel)) void k(int* out) {
    int i = __nvvm_read_ptx_sreg_tid_x();
    Function* volatile function = i % 2 ? power : less;
    out[i] = picked(made(i), i % 6) + narrow(i, -i, i & 1) + function(i + 2, i % 5);
}
"""


def test_what_clang_makes(cuda: Cuda, tmp_path: Path) -> None:
    """Structures are read through the addresses of parameters."""
    (tmp_path / "calls.c").write_text(C)
    subprocess.run([build.find().zig, "clang", "--target=nvptx64-nvidia-cuda", "-march=sm_90", "-O1", "-S",
                    tmp_path / "calls.c", "-o", tmp_path / "calls.ptx"], check=True, timeout=200)
    text = (tmp_path / "calls.ptx").read_text()
    assert "mov.b64 \t%rd1, picked_param_0;" in text
    out, i = np.zeros(32, np.int32), np.arange(32)
    cuda.launch(text[text.index(".address_size 64") + 16:], [out], target="sm_90")
    pointed = np.array([pow(n + 2, n % 5, 1009) if n % 2 else n + 2 - n % 5 for n in range(32)])
    assert out.tolist() == (i * (i % 6) + 2 + i + (i - 2 * i + i % 2) + pointed).tolist()


# Registers as parameters, as PTX by hand has them. The arguments change places on the way down.
REGISTERS = """
.func (.reg .b32 %out) ends (.reg .b32 %a, .reg .b32 %b, .reg .u64 %n) {
.reg .pred %p; .reg .u64 %m; .reg .b32 %t;
setp.eq.u64 %p, %n, 0; mov.b32 %out, %a; @%p ret;
sub.u64 %m, %n, 1; call (%t), ends, (%b, %a, %m); mad.lo.u32 %out, %t, 3, %a;
}
.visible .entry k(.param .u64 pout) {
.reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd0, [pout]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
add.u64 %rd2, %rd0, %rd1; and.b32 %r1, %r0, 3; cvt.u64.u32 %rd3, %r1;
call (%r2), ends, (%r0, 7, %rd3); st.global.u32 [%rd2], %r2; ret; }"""


def test_parameters_in_registers(cuda: Cuda) -> None:
    def ends(a: int, b: int, n: int) -> int:
        return a if n == 0 else 3 * ends(b, a, n - 1) + a

    out = np.zeros(32, np.uint32)
    cuda.launch(REGISTERS, [out])
    assert out.tolist() == [ends(i, 7, i % 4) for i in range(32)]


# A call by an address, of one of two functions; behind a predicate, which half of the lanes have.
HEAD = """.visible .entry k(.param .u64 pout) {
.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .local .align 8 .b8 own[8];
ld.param.u64 %rd0, [pout]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1;
and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; setp.lt.u32 %p1, %r0, 16; mov.u32 %r2, 1000; mov.u64 %rd4, own;
"""
INDIRECT = """
.func (.param .b32 result) add (.param .b32 x) {
.reg .b32 %r<4>; ld.param.u32 %r0, [x]; add.u32 %r1, %r0, 100; st.param.b32 [result], %r1; ret; }
.func (.param .b32 result) double (.param .b32 x) {
.reg .b32 %r<4>; ld.param.u32 %r0, [x]; shl.b32 %r1, %r0, 1; st.param.b32 [result], %r1; ret; }
.func (.param .b32 result) longer (.param .b64 x) {
.reg .b32 %r<4>; ld.param.u32 %r0, [x]; st.param.b32 [result], %r0; ret; }
.func (.param .b32 result) strange (.param .b32 x) { .reg .b32 %r<4>; no.such.thing %r0, 1; ret; }
.func (.param .b32 result) undefined (.param .b32 x);
.global .u64 table[5] = {add, double, longer, strange, k};
""" + HEAD + """prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
targets: .calltargets add, double;
mov.u64 %rd3, add; @%p1 mov.u64 %rd3, double;
{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r0;
@%p0 call (y), %rd3, (x), prototype; @%p0 ld.param.b32 %r2, [y]; }
st.global.u32 [%rd2], %r2; ret; }"""


def test_calls_by_address_and_predicate(cuda: Cuda) -> None:
    i = np.arange(32)
    for text in (INDIRECT, INDIRECT.replace("(x), prototype", "(x), targets")):
        out = np.zeros(32, np.uint32)
        cuda.launch(text, [out])
        assert out.tolist() == np.where(i % 2, 1000, np.where(i < 16, 2 * i, i + 100)).tolist()


# Each call has its variables anew; the word that is read back was stored by the call itself.
FRAMES = """
.func (.param .b32 result) f (.param .b32 x, .param .b64 before) {
.local .align 8 .b8 mine[16]; .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u32 %r0, [x]; mov.u64 %rd1, mine;
.loc 1 77 3
st.local.u32 [%rd1+12], %r0; ld.param.u64 %rd2, [before]; st.local.u32 [%rd2+4], %r0;
ld.local.u32 %r1, [%rd1+12]; st.param.b32 [result], %r1; ret; }
.func g (.param .b64 where) { .reg .b64 %rd<4>; .local .align 8 .b8 mine[16];
ld.param.u64 %rd1, [where]; mov.u64 %rd2, mine; st.local.u64 [%rd1], %rd2; ret; }
.func endless (.param .b32 x) { .reg .b32 %r<4>; ld.param.u32 %r0, [x];
{ .param .b32 y; st.param.b32 [y], %r0; call endless, (y); } ret; }
""" + HEAD + """setp.eq.u32 %p2, %r0, 99;
{ .param .b32 x; .param .b64 before; .param .b32 y; st.param.b32 [x], %r0; st.param.b64 [before], %rd4;
call (y), f, (x, before); ld.param.b32 %r2, [y]; }
{ .param .b64 where; st.param.b64 [where], %rd4; call g, (where); }
@%p2 bra LAST; ld.local.u64 %rd5, [%rd4];
LAST: { .param .b32 x; st.param.b32 [x], %r0; @%p2 call endless, (x); }
st.global.u32 [%rd2], %r2; ret; }"""


@dataclass(frozen=True)
class Fault:
    """``wrong`` in place of ``right`` makes ``check`` speak, with ``error``, of function ``where`` and its line."""

    kernel: str
    right: str
    wrong: str
    check: str
    error: int
    where: str = ""
    line: int = 0


FAULTS = {
    "a store behind a function's variables": Fault(
        FRAMES, "[%rd1+12], %r0; ld", "[%rd1+32], %r0; ld", "bounds", 700, "function f", 77),
    "a store before them": Fault(FRAMES, "[%rd1+12], %r0; ld", "[%rd1+-32], %r0; ld", "bounds", 700, "function f", 77),
    "a store behind the caller's": Fault(FRAMES, "[%rd2+4], %r0", "[%rd2+16], %r0", "bounds", 700, "function f", 77),
    "a variable of a call that has come back": Fault(
        FRAMES, "LAST: {", "LAST: ld.local.u32 %r2, [%rd5]; {", "bounds", 700),
    "calls without an end": Fault(FRAMES, "%p2, %r0, 99", "%p2, %r0, 5", "stack", 714, "function endless"),
    "no function's address": Fault(INDIRECT, "%rd3, add;", "%rd3, 0;", "call", 719),
    "a kernel's address": Fault(INDIRECT, "%rd3, add;", "%rd3, k;", "call", 719),
    "a function with other parameters": Fault(INDIRECT, "%rd3, add;", "%rd3, longer;", "call", 719),
    "a function that is not supported": Fault(INDIRECT, "%rd3, add;", "%rd3, strange;", "call", 719),
}


def ran(cuda: Cuda, kernel: str) -> Array:
    out = np.zeros(32, np.uint32)
    cuda.launch('.file 1 "calls.cu"\n' + kernel, [out])
    return out


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_twin_is_not(cuda: Cuda, name: str) -> None:
    fault = FAULTS[name]
    assert fault.kernel.count(fault.right) == 1
    out = ran(cuda, fault.kernel)
    if fault.kernel is FRAMES:
        assert out.tolist() == list(range(32))
    with pytest.raises(Refused) as refused:
        ran(cuda, fault.kernel.replace(fault.right, fault.wrong))
    (finding,) = refused.value.findings
    assert (finding["check"], refused.value.code) == (fault.check, fault.error)
    assert fault.where in finding["kernel"]
    if fault.line:
        assert (finding["file"], finding["line"]) == ("calls.cu", fault.line)


def test_a_calls_variables_are_anew(cuda: Cuda) -> None:
    """What an earlier call left in the same place is gone: every bit is set, as in memory that nobody has written."""
    second = FRAMES.replace("LAST: {", """LAST: { .param .b32 x; .param .b64 before; .param .b32 y;
st.param.b32 [x], %r0; st.param.b64 [before], %rd4; call (y), f, (x, before); ld.param.b32 %r2, [y]; } {""")
    assert ran(cuda, second).tolist() == list(range(32))
    unwritten = second.replace(".loc 1 77 3\nst.local.u32 [%rd1+12], %r0;", "")
    assert ran(cuda, unwritten).tolist() == [0xFFFFFFFF] * 32


@pytest.mark.parametrize(("change", "why"), [
    (("call (y), f, (x, before);", "call (y), f, (before, x);"), "the arguments are not those that f takes"),
    (("call g, (where);", "call nowhere, (where);"), "there is no function nowhere in the PTX"),
    (("call g, (where);", "call strange, (where);"), "'no.such.thing %r0, 1' is not supported"),
])
def test_what_is_refused_before_it_runs(cuda: Cuda, change: tuple[str, str], why: str) -> None:
    strange = ".func strange (.param .b64 x) { .reg .b32 %r<4>; no.such.thing %r0, 1; ret; }\n"
    assert FRAMES.count(change[0]) == 1
    with pytest.raises(Refused, match=why):
        ran(cuda, strange + FRAMES.replace(*change))


# A function under another name, that does not come back; the end of a function is a return.
NO_RETURN = """
.func leave (.param .b64 at) .noreturn { .reg .b64 %rd<2>; .reg .b32 %r<2>;
ld.param.u64 %rd0, [at]; mov.u32 %r0, 5; st.global.u32 [%rd0], %r0; exit; }
.alias away, leave;
.func nothing { .reg .b32 %r<2>; mov.u32 %r0, 5; }
""" + HEAD + """call nothing;
{ .param .b64 at; st.param.b64 [at], %rd2; @%p0 call away, (at); }
st.global.u32 [%rd2], %r2; bar.sync 0; ret; }"""


def test_a_function_that_does_not_come_back(cuda: Cuda) -> None:
    assert ran(cuda, NO_RETURN).tolist() == [5, 1000] * 16


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_random_order(cuda: Cuda, seed: int) -> None:
    cuda.set(schedule=f"random:{seed}")
    try:
        test_parameters_in_registers(cuda)
        test_calls_by_address_and_predicate(cuda)
        test_a_function_that_does_not_come_back(cuda)
    finally:
        cuda.set(schedule="late")


def test_kernels_of_calls_count_each_function(cuda: Cuda) -> None:
    """Parameters are no traffic of memory: they are in registers."""
    cuda.set(counters=1)
    try:
        ran(cuda, INDIRECT)
        text = cuda.taken("counters")
    finally:
        cuda.set(counters=0)
    assert '"local_bytes":0' in text.replace(" ", "")
