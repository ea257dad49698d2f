# SPDX-License-Identifier: MIT
"""kernel.h is read by compilers and by this parser: they must agree, and anything else must be refused with a line."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import SourceError
from backends.source import SCALARS, Param, Signature
from backends.toolchain import CompilingBackend

REPOSITORY = Path(__file__).parents[2]
HEADERS = sorted((REPOSITORY / "problems").glob("*/kernel.h"))


def parse(text: str) -> Signature:
    return Signature.parse(text, "kernel.h")


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.parent.name)
def test_every_problem_has_a_header_that_parses_and_names_its_folder(header: Path) -> None:
    signature = Signature.read(header)
    assert signature.symbol == header.parent.name
    assert signature.params[-3:] == (
        Param("workspace", "void*"), Param("workspace_bytes", "size_t"), Param("queue", "void*"))


@pytest.mark.toolchain
@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.parent.name)
def test_the_compiler_reads_the_same_prototype(
    header: Path, backend_of: Callable[[str], CompilingBackend], tmp_path: Path
) -> None:
    compiler = backend_of("cpu").probe().compiler
    signature = Signature.read(header)
    types = ", ".join(param.ctype for param in signature.params)
    probe = tmp_path / "probe.cpp"
    probe.write_text(f'#include <type_traits>\n#include "{header}"\nusing Expected = int (*)({types});\n'
                     f"static_assert(std::is_same_v<decltype(&{signature.symbol}), Expected>);\n")
    run = subprocess.run([str(compiler), "-std=c++17", "-fsyntax-only", str(probe)], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()


def test_all_types_bind_to_their_ctypes() -> None:
    types = [*SCALARS, "const float*", "void*"]
    params = ", ".join(f"{ctype} p{number}" for number, ctype in enumerate(types))
    signature = parse(f"int f({params}, void* queue);")
    assert [param.ctype for param in signature.params] == [*types, "void*"]
    sizes = dict(zip(types, map(ctypes.sizeof, signature.argtypes()), strict=False))
    assert [sizes[name] for name in ("bool", "int8_t", "uint16_t", "int", "float", "double", "long", "size_t")] == [
        1, 1, 2, 4, 4, 8, 8, 8]
    assert signature.argtypes()[-3:] == [ctypes.c_void_p] * 3


@pytest.mark.toolchain
def test_the_compiler_gives_every_scalar_the_size_that_ctypes_does(
    backend_of: Callable[[str], CompilingBackend], tmp_path: Path
) -> None:
    compiler = backend_of("cpu").probe().compiler
    sizes = {name: ctypes.sizeof(Param("x", name).binding) for name in SCALARS}
    probe = tmp_path / "probe.cpp"
    probe.write_text("#include <stddef.h>\n#include <stdint.h>\n" + "".join(
        f'static_assert(sizeof({name}) == {size}, "{name}");\n' for name, size in sizes.items()))
    run = subprocess.run([str(compiler), "-std=c++17", "-fsyntax-only", str(probe)], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()


def test_comments_preprocessor_lines_and_line_continuations_do_not_count() -> None:
    signature = parse('#define A \\\n  int b;\n/* int c(); */\nextern "C" {  // d\n'
                      "int f(\n const void * /* e */ x,void*queue)\n;}")
    assert signature == Signature("f", (Param("x", "const void*"), Param("queue", "void*")))


PLAIN = """\
#ifndef PLAIN_H
#define PLAIN_H
#include <stdint.h>
#include "types.h"
#if defined(__cplusplus) && !defined(PLAIN_C)
extern "C" {
#endif
#define QUEUE void *queue
#if VERSION >= 2 || 0
int scale_v2(int n, QUEUE);
#else
#error "too old"
#endif
enum form { FORM_A, FORM_B = 4 };
struct shape { int rows, columns; };
static inline int rows(const struct shape *s) { return s->rows; }
int helper(double x);
int plain(const half_t *x, const struct shape *s, float y[], index_t n, enum form form, unsigned flags,
          _Bool wide, const double eps, QUEUE);
#ifdef __cplusplus
}
#endif
#endif
"""


def test_a_plain_c_header_has_typedefs_enums_macros_includes_and_other_functions(tmp_path: Path) -> None:
    header = tmp_path / "plain" / "kernel.h"
    header.parent.mkdir()
    header.write_text(PLAIN)
    (header.parent / "types.h").write_text("#define VERSION 2\ntypedef uint16_t half_t;\ntypedef int64_t index_t;\n")
    assert Signature.read(header) == Signature("plain", (
        Param("x", "const half_t*"), Param("s", "const shape*"), Param("y", "float*"), Param("n", "int64_t"),
        Param("form", "int"), Param("flags", "unsigned int"), Param("wide", "bool"), Param("eps", "double"),
        Param("queue", "void*")))
    (header.parent / "types.h").write_text("#define VERSION 1\n")
    with pytest.raises(SourceError, match=r"kernel\.h:12: #error"):
        Signature.read(header)
    (header.parent / "types.h").write_text("\ntypedef uint16_t;\nint oops(;\n#define VERSION 2\n")
    with pytest.raises(SourceError, match=r"types\.h:2: is no C"):
        Signature.read(header)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "declares no function"),
        ("int f(void* queue)", 1, "ends in the middle"),
        ("int f(void* queue) {}", 1, "prototype"),
        ("int f(\nint n,\nint n, void* queue);", 3, "twice"),
        ("struct s { int a; };\nint f(\n\nstruct s x, void* queue);", 4, "'struct s', which cannot be passed"),
        ("int f(\n\nhalf x, void* queue);", 3, "is no C before 'x'"),
        ("int f(void* queue, int n);", 1, "last parameter"),
        ("int f(const void* queue);", 1, "last parameter"),
        ("int f();", 1, "last parameter"),
        ("int f(void);", 1, "last parameter"),
        ("int f(int, void* queue);", 1, "needs a name"),
        ("void f(void* queue);", 1, "must return int"),
        ("int* f(void* queue);", 1, "must return int"),
        ("int f(void* queue);\nint g(void* queue);", 2, "more than one prototype"),
        ('extern "C" {\nint f(void* queue);', 1, "is no C"),
        ("int f(\nvoid** p, void* queue);", 2, "points to pointers"),
        ("int f(int (*call)(int), void* queue);", 1, "points to pointers"),
        ("int f(int int int, void* queue);", 1, ""),
        ("\n\nint é(void* queue);", 3, "is no C"),
        ('\n#include "gone.h"\nint f(void* queue);', 2, "does not lie beside it"),
        ("#if SIZE(3)\n#endif\nint f(void* queue);", 1, "is not understood"),
        ("#ifdef A\nint f(void* queue);", 1, "no #endif"),
    ],
)
def test_anything_else_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SourceError, match=r"kernel\.h:") as caught:
        parse(text)
    assert caught.value.line == line
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        Signature.read(tmp_path / "kernel.h")
    (tmp_path / "kernel.h").write_bytes(b"int f(\n\xff")
    with pytest.raises(SourceError, match="not UTF-8") as caught:
        Signature.read(tmp_path / "kernel.h")
    assert caught.value.line == 2


FRAGMENTS = st.sampled_from(
    [*SCALARS, "const void*", "int", "f", "(", ")", ",", ";", "void* queue", 'extern "C"', "{", "}", "/*", "*/", "//",
     "#if", "#define f", "struct", "typedef", "[3]", "\\", "\n", '"', "é", "\0", "const", "*", " "])


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(FRAGMENTS, max_size=30).map(" ".join)))
def test_any_text_is_a_signature_or_a_source_error(text: str) -> None:
    try:
        signature = parse(text)
    except SourceError as error:
        line = error.line
    else:
        line = 1
        assert signature.params[-1] == Param("queue", "void*")
    assert 1 <= line <= text.count("\n") + 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*sorted(SCALARS), "const float*", "void*"]),
                          st.from_regex(r"p_[a-z0-9_]{1,8}", fullmatch=True)),
                unique_by=lambda pair: pair[1], max_size=8))
def test_what_is_written_is_what_is_read(pairs: list[tuple[str, str]]) -> None:
    params = "".join(f"{ctype} {name}, " for ctype, name in pairs)
    assert parse(f"int f({params}void* queue);").params == (
        *(Param(name, ctype) for ctype, name in pairs), Param("queue", "void*"))
