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

from backends.base import SourceError
from backends.source import CTYPES, Param, Signature
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
    names = [f"p{number}" for number in range(len(CTYPES))]
    params = ", ".join(f"{ctype} {name}" for ctype, name in zip(CTYPES, names, strict=True))
    signature = parse(f"int f({params}, void* queue);")
    assert [param.ctype for param in signature.params] == [*CTYPES, "void*"]
    pointer = ctypes.c_void_p
    assert signature.argtypes() == [
        pointer, pointer, pointer, pointer, pointer, pointer, ctypes.c_int, ctypes.c_float, ctypes.c_size_t, pointer]


def test_comments_preprocessor_lines_and_line_continuations_do_not_count() -> None:
    signature = parse('#define A \\\n  int b;\n/* int c(); */\nextern "C" {  // d\n'
                      "int f(\n const void * /* e */ x,void*queue)\n;}")
    assert signature == Signature("f", (Param("x", "const void*"), Param("queue", "void*")))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "expected 'int'"),
        ("int f(void* queue)", 1, "expected ';'"),
        ("int f(void* queue) {}", 1, "prototype"),
        ("int f(\nint n,\nint n, void* queue);", 3, "twice"),
        ("int f(\n\ndouble x, void* queue);", 3, "'double' is not one of"),
        ("int f(const int n, void* queue);", 1, "'const int' is not one of"),
        ("int f(void* queue, int n);", 1, "last parameter"),
        ("int f(const void* queue);", 1, "last parameter"),
        ("int f();", 1, "is not one of"),
        ("void f(void* queue);", 1, "returns int"),
        ("int f(void* queue);\nint g(void* queue);", 2, "more than the one prototype"),
        ('extern "C" {\nint f(void* queue);', 2, "expected '}'"),
        ("int f(void** p, void* queue);", 1, "expected a parameter name"),
        ("int f(int a[3], void* queue);", 1, "unexpected character '['"),
        ("int f(int int, void* queue);", 1, "expected a parameter name"),
        ("\n\nint é(void* queue);", 3, "unexpected character"),
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
    [*CTYPES, "int", "f", "(", ")", ",", ";", "void* queue", 'extern "C"', "{", "}", "/*", "*/", "//", "#if", "\\",
     "\n", '"', "é", "\0", "const", "*", " "])


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
@given(st.lists(st.tuples(st.sampled_from(sorted(CTYPES)), st.from_regex(r"p_[a-z0-9_]{1,8}", fullmatch=True)),
                unique_by=lambda pair: pair[1], max_size=8))
def test_what_is_written_is_what_is_read(pairs: list[tuple[str, str]]) -> None:
    params = "".join(f"{ctype} {name}, " for ctype, name in pairs)
    assert parse(f"int f({params}void* queue);").params == (
        *(Param(name, ctype) for ctype, name in pairs), Param("queue", "void*"))
