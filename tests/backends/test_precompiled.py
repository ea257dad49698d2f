# SPDX-License-Identifier: MIT
"""HIP's headers are compiled once in a cache: the same bits come out, and what goes wrong with them costs time only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import backends
from backends import _includes, _llvm, _precompiled
from backends._cache import Cache
from backends.base import Binary
from backends.source import KernelSource

RUNTIME = "hip/hip_runtime.h"


@pytest.fixture
def built(source_of: Callable[[str], KernelSource], tmp_path: Path) -> Callable[[int], Binary]:
    """Compiles a kernel in one cache, as often as there are values of a macro that it does not read."""
    backend = backends.get("rocm")
    if not isinstance(backend.compiler() if backend.probe().can_compile else None, _llvm.Llvm):
        pytest.skip("no plain clang that compiles HIP")
    return lambda value: backend.compile(
        source_of("rocm"), backend.target(), {"UNREAD": value}, cache_dir=tmp_path / "cache")


def headers(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "binaries").rglob(_precompiled.NAME))


def test_the_second_build_reads_them_and_makes_the_same_bits(built: Callable[[int], Binary], tmp_path: Path) -> None:
    plain = built(1)
    assert headers(tmp_path) == [], "for one kernel alone they cost more than they save"
    quick = built(2)
    assert len(headers(tmp_path)) == 2, "the device's and the host's"
    assert quick.path.read_bytes() == plain.path.read_bytes()
    assert quick.code_object is not None
    assert plain.code_object is not None
    assert quick.code_object.read_bytes() == plain.code_object.read_bytes()
    assert not [word for word in quick.command if "pch" in word], "a record's command can be run anywhere"


def test_headers_that_cannot_be_read_are_no_failure(
    built: Callable[[int], Binary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (damaged := tmp_path / "damaged.pch").write_bytes(b"CPCH")
    asked: list[object] = []
    monkeypatch.setattr(_precompiled, "find", lambda *arguments: asked.append(arguments) or damaged)
    assert built(1).path.is_file()
    assert len(asked) == 2


def test_what_cannot_be_made_is_tried_once(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho >> {tried}\nexit 1\n")
    compiler.chmod(0o755)
    cache = Cache(tmp_path / "cache")
    assert [_precompiled.find([str(compiler)], [compiler], {}, cache) for _ in range(4)] == [None] * 4
    assert tried.read_text() == "\n"


def test_another_header_makes_other_ones(tmp_path: Path) -> None:
    header, compiler = tmp_path / "header.h", tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\ncat {header} > "$2"\n')
    compiler.chmod(0o755)
    cache, found = Cache(tmp_path / "cache"), []
    for text in ("one", "longer"):
        header.write_text(text)
        assert _precompiled.find([str(compiler)], [header], {}, cache) is None
        found.append(_precompiled.find([str(compiler)], [header], {}, cache))
        assert found[-1] is not None
        assert found[-1].read_text() == text
    assert _precompiled.find([str(compiler)], [header], {"CPATH": "elsewhere"}, cache) is None
    entry = json.loads((found[0].parent / "entry.json").read_text())
    assert entry["facts"] == {"returncode": 0}


@pytest.mark.parametrize(("text", "leads"), [
    (f"#include <{RUNTIME}>\n#define A 1\n", True),
    (f'#include "below.h"\nint f();\n#ifdef B\n#endif\n#include <{RUNTIME}>\n', True),
    (f"#if defined(A) || defined(__HIP__)\n#include <{RUNTIME}>\n#endif\n", True),
    (f"#ifdef __HIPCC__\n#include <{RUNTIME}>\n#endif\n", True),
    (f"#ifdef B\n#include <{RUNTIME}>\n#endif\n", False),
    (f"#if defined(A) && defined(__HIP__)\n#include <{RUNTIME}>\n#endif\n", False),
    (f"#if (defined(A) || defined(__HIP__) || defined(C)) && B\n#include <{RUNTIME}>\n#endif\n", False),
    (f"#ifdef __HIP__\n#else\n#include <{RUNTIME}>\n#endif\n", False),
    (f"#ifndef GUARD_H\n#define GUARD_H\n#if 0\n#include <{RUNTIME}>\n#endif\n#endif\n", False),
    ('#ifdef B\n#include "runtime.h"\n#endif\n', False),
    ('#include "runtime.h"\n', True),
    (f"#pragma once\n#ifndef GUARD_H\n#define GUARD_H\n#include <stdint.h>\n#include <{RUNTIME}>\n#endif\n", True),
    (f"#define WARPWAVE_OURS 1\n#include <{RUNTIME}>\n", True),
    (f"// #define A 1\n#include <{RUNTIME}>\n", True),
    (f"#define A 1\n#include <{RUNTIME}>\n", False),
    (f"#undef A\n#include <{RUNTIME}>\n", False),
    (f"#ifndef HIP_ENABLE_WARP_SYNC_BUILTINS\n#define HIP_ENABLE_WARP_SYNC_BUILTINS\n#include <{RUNTIME}>\n", False),
    (f"#ifndef GUARD_H\n#define GUARD_H 2\n#include <{RUNTIME}>\n", False),
    (f"#pragma clang fp contract(off)\n#include <{RUNTIME}>\n", False),
    (f'#include "defines.h"\n#include <{RUNTIME}>\n', False),
    (f"#define \\\nA 1\n#include <{RUNTIME}>\n", False),
    (f"#define A <{RUNTIME}>\n#include A\n", False),
    (f"#include A\n#include <{RUNTIME}>\n", False),
    ("int f();\n", False),
])
def test_only_what_comes_first_may_be_compiled_before(tmp_path: Path, text: str, leads: bool) -> None:
    (tmp_path / "below.h").write_text('#include "below.h"\nint g();\n')
    (tmp_path / "defines.h").write_text("#define A 1\n")
    (tmp_path / "runtime.h").write_text(f"#pragma once\n#include <{RUNTIME}>\n")
    (tmp_path / "kernel.hip").write_text(text)
    assert _includes.leads_with(tmp_path / "kernel.hip", [], RUNTIME) is leads
