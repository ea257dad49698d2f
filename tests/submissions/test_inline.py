# SPDX-License-Identifier: MIT
"""Inlining headers: once each, from the right folder, and blind to whatever stands in comments and strings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from submissions.inline import InlineError, inline

KNOWN = {"WARPWAVE_PACKED": True, "__cplusplus": True}


def text_of(root: Path, name: str = "main.cu", folders: tuple[str, ...] = ()) -> str:
    lines = inline(root / name, [root / folder for folder in folders], KNOWN, root)
    return "\n".join(line.text for line in lines if line.text)


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + (".cu" if name == "main" else ".h"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_each_header_once_in_the_place_of_its_first_include(tmp_path: Path) -> None:
    write(tmp_path, main='#include "b.h"\n#include "a.h"\nmain\n', b="#pragma once\nb\n")
    write(tmp_path, a='#pragma once\n#include "b.h"\na\n')
    assert text_of(tmp_path) == "// ==== b.h\nb\n// ==== a.h\na\nmain"


def test_a_cycle_ends(tmp_path: Path) -> None:
    write(tmp_path, main='#include "a.h"\n', a='#include "b.h"\na\n', b='#include "a.h"\nb\n')
    assert text_of(tmp_path) == "// ==== a.h\n// ==== b.h\nb\na"


def test_the_includers_folder_comes_first_then_the_folders_in_order(tmp_path: Path) -> None:
    write(tmp_path, main='#include "x/a.h"\n', x__a='#include "b.h"\n', x__b="near\n", y__b="far\n", z__b="farther\n")
    assert "near" in text_of(tmp_path, folders=("y",))
    (tmp_path / "x/b.h").unlink()
    assert text_of(tmp_path, folders=("y", "z")).endswith("far")


def test_system_includes_and_other_directives_stay(tmp_path: Path) -> None:
    lines = "#include <cstdint>\n#pragma unroll 4\n#define A \\\n    1\n#error no"
    write(tmp_path, main=lines)
    assert text_of(tmp_path) == lines


def test_comments_and_strings_are_no_directives(tmp_path: Path) -> None:
    lines = ('/*\n#include "gone.h"\n#if NO\n*/\nconst char* a = "/*"; // */ #endif\n'
             'const char* b = R"x(\n#include "gone.h"\n)x";\nint c = 1\'000\'000; char d = \'"\';  // "\n'
             '// spliced \\\n#include "gone.h"')
    write(tmp_path, main=lines)
    assert text_of(tmp_path) == lines


def test_packed_branch_alone_survives(tmp_path: Path) -> None:
    write(tmp_path, main='#ifdef WARPWAVE_PACKED // yes\npacked\n#else\n#include "local.h"\nlocal\n#endif /* end */\n')
    assert text_of(tmp_path) == "packed"     # local.h does not even exist


def test_include_guards_are_no_conditions(tmp_path: Path) -> None:
    write(tmp_path, main='#include "a.h"\n', a='// a\n#ifndef A_H\n#define A_H\n#include "b.h"\n#endif\n', b="b\n")
    assert text_of(tmp_path) == "// ==== a.h\n// a\n#define A_H\n// ==== b.h\nb"


def test_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_bytes(b'#include "a.h"\r\nmain\r\n')
    (tmp_path / "a.h").write_bytes(b"#pragma once\r\na\r\n")
    assert text_of(tmp_path) == "// ==== a.h\na\nmain"


def test_lines_know_where_they_come_from(tmp_path: Path) -> None:
    write(tmp_path, main='// 1\n#include "a.h"\nx\n', a="\na\n")
    lines = inline(tmp_path / "main.cu", [], KNOWN, tmp_path)
    found = {(line.text, line.path.as_posix(), line.number) for line in lines}
    assert {("a", "a.h", 2), ("x", "main.cu", 3)} <= found


def test_comments_become_ascii_character_by_character(tmp_path: Path) -> None:
    write(tmp_path, main="// 2×3 — café µs ≤ ∞\nx\n")
    assert text_of(tmp_path) == "// 2x3 - cafe us < ?\nx"


@pytest.mark.parametrize(("text", "where", "words"), [
    ('x\n#include "gone.h"\n', "main.cu:2", "gone.h"),
    ("#include NAME\n", "main.cu:1", "computed"),
    ('#if __CUDA_ARCH__ > 1\n#include "a.h"\n#endif\n', "main.cu:2", "only the compiler can decide"),
    ("#if X\n", "main.cu:1", "#if without #endif"),
    ("x\n#endif\n", "main.cu:2", "#endif without #if"),
    ('const char* a = "µ";\n', "main.cu:1", "not ASCII"),
])
def test_what_cannot_be_inlined(tmp_path: Path, text: str, where: str, words: str) -> None:
    write(tmp_path, main=text, a="a\n")
    with pytest.raises(InlineError, match=re.escape(words)) as caught:
        text_of(tmp_path)
    assert str(caught.value).startswith(f"{where}: ")


PIECES = st.sampled_from([
    '#include "a.h"', "#include <a>", "#if X", "#ifdef NO", "#else", "#endif", "#elif YES", "/*", "*/", "//", '"', "'",
    'R"(', ')"', "\\", "\n", "\n", " ", "x", "#define A", "#pragma once", "é", "\r\n"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=20).map("".join))
def test_any_text_is_inlined_or_refused_with_a_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "main.cu").write_bytes(text.encode())
    write(tmp_path, a="a\n")
    try:
        lines = inline(tmp_path / "main.cu", [], KNOWN, tmp_path)
    except InlineError as error:
        assert re.match(r"(main\.cu|a\.h):\d+: ", str(error))     # noqa: PT017 - either outcome is fine, no third one is
        return
    assert all(line.text.isascii() for line in lines)
    assert sum(line.text == "a" for line in lines) <= 1
