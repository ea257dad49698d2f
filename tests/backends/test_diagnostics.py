# SPDX-License-Identifier: MIT
"""Logs that real compilers wrote, and what must come out of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends import _diagnostics, _ptxas
from backends.errors import Diagnostic

LOGS = Path(__file__).parent / "data" / "logs"
ROOT = Path("/checkout")


def parse(name: str) -> tuple[Diagnostic, ...]:
    return _diagnostics.parse((LOGS / f"{name}.log").read_text(), ROOT, "k.cu")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("nvcc_front_end", [
            ("bad2.cu", 3, "error", 'identifier "undefined_thing" is undefined'),
            ("bad2.cu", 4, "error",
             'a value of type "const char *" cannot be used to initialize an entity of type "int"'),
        ]),
        ("nvcc_missing_header", [
            ("bad.cu", 1, "error", "missing_header_is_elsewhere.h: No such file or directory")]),
        ("nvcc_option", [("k.cu", 0, "error", "nvcc: Unknown option '--bogus'")]),
        ("ptxas_errors", [
            ("k.cu", 0, "error", "Unknown modifier '.instr' (PTX line 29)"),
            ("k.cu", 0, "error", "Not a name of any known instruction: 'bogus' (PTX line 29)"),
        ]),
        ("ptxas_wgmma", [
            ("k.cu", 0, "warning", "(C7517) warpgroup.wait is injected in around line 44 by compiler to allow use of "
             "registers defined by GMMA in function '_Z1kPfyy'")]),
        ("ptxas_sm_90a", [
            ("../t.cu", 9, "warning", 'variable "unused" was declared but never referenced')]),
        ("gcc_syntax", [("link.cpp", 2, "error", "expected ';' before '}' token")]),
        ("gcc_template", [
            ("mac.h", 1, "error", "request for member 'nothing' in 'v', which is of non-class type 'int'"),
            ("mac.cpp", 2, "note", "in expansion of macro 'BAD'"),
        ]),
        ("gnu_ld", [("k.cu", 0, "error", "undefined reference to `g()'")]),
        ("clang_front", [
            ("kernels/front.hip", 3, "error", "use of undeclared identifier 'undefined_thing'"),
            ("kernels/front.hip", 3, "error",
             "cannot initialize a variable of type 'int' with an lvalue of type 'const char[2]'"),
        ]),
        ("clang_lds", [
            ("kernels/lds.hip", 3, "error", "local memory (80000) exceeds limit (65536) in 'k(float*)'")]),
        ("clang_undef", [("k.cu", 0, "error", "ld.lld: undefined hidden symbol: elsewhere(float)")]),
    ],
)
def test_a_real_log(log: str, expected: list[tuple[str, int, str, str]]) -> None:
    assert parse(log) == tuple(Diagnostic(*fields) for fields in expected)


@pytest.mark.parametrize(
    ("line", "severity", "message"),
    [
        ("error: <unknown>:0:0: local memory (70000) exceeds limit (65536) in function 'k'", "error",
         "local memory (70000) exceeds limit (65536) in function 'k'"),
        ("/opt/rocm/llvm/bin/clang++: error: invalid target ID 'gfx9'", "error", "clang++: invalid target ID 'gfx9'"),
        ("clang: error: unable to execute command: Killed", "error", "clang: unable to execute command: Killed"),
        ("nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)", "error",
         "nvcc: 'ptxas' died due to signal 11 (Invalid memory reference)"),
        ("ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill stores", "warning",
         "ptxas: Registers are spilled to local memory in function 'k', 8 bytes spill stores"),
        ("/usr/bin/ld: cannot find -lnothing: No such file or directory", "error",
         "cannot find -lnothing: No such file or directory"),
        ("/usr/bin/ld: a.cpp:(.text+0x5): undefined reference to `g'", "error", "undefined reference to `g'"),
    ],
)
def test_messages_without_a_place_belong_to_the_kernel(line: str, severity: str, message: str) -> None:
    assert _diagnostics.parse(line, ROOT, "k.cu") == (Diagnostic("k.cu", 0, severity, message),)


def test_what_repeats_is_said_once_and_the_rest_is_no_message() -> None:
    log = "a.cu(1): error: x\na.cu(1): error: x\n    x;\n    ^\n\n1 error detected in the compilation of \"a.cu\".\n"
    assert _diagnostics.parse(log, ROOT) == (Diagnostic("a.cu", 1, "error", "x"),)


def test_paths_become_relative_inside_the_checkout_only(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    assert _diagnostics.shorten("kernels/x.cu", link) == "kernels/x.cu"
    assert _diagnostics.shorten(str(link / "x.cu"), link) == "x.cu"
    assert _diagnostics.shorten(str(tmp_path / "real" / "x.cu"), link) == "x.cu"
    assert _diagnostics.shorten("/usr/include/math.h", link) == "/usr/include/math.h"


def test_a_line_of_ptx_becomes_a_line_of_the_source() -> None:
    ptx = '.version 9.0\n\t.loc\t1 3 0\nld;\n\t.loc\t2 30 7, function_name $L, inlined_at 1 4 2\nbogus;\n' \
          '.file\t1 "/checkout/k.cu"\n.file\t2 "/checkout/tile/a.h"\n'
    assert _ptxas.source_place(ptx, 1) is None
    assert _ptxas.source_place(ptx, 3) == ("/checkout/k.cu", 3)
    assert _ptxas.source_place(ptx, 5) == ("/checkout/tile/a.h", 30)
    assert _ptxas.ptx_line("x (PTX line 29)") == 29
    assert _ptxas.ptx_line("injected in around line 44 by compiler") == 44
    assert _ptxas.ptx_line("line 3") is None
