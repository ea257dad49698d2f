# SPDX-License-Identifier: MIT
"""The //!KERNEL grammar, kernel discovery and the values of a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import SourceError
from backends.source import Directives, KernelSource, by_step, directives, kernels

ARCH = "//!KERNEL arch sm_90a\n"


def parse(text: str, language: str = "cuda") -> Directives:
    return directives(text, "k.cu", language)


def test_all_directives() -> None:
    found = parse(
        "// SPDX-License-Identifier: MIT\n\n/* a block\n comment */\n//!KERNEL summary  Two words \n// more\n"
        "//!KERNEL arch sm_89 sm_90a\r\n//!KERNEL define A=1\n//!KERNEL define B=(x<<2)\n"
        "//!KERNEL tune T=8,-4,1.5,yes\n#include <x>\n// comment below the block\n"
    )
    assert found.summary == "Two words"
    assert found.arches == ("sm_89", "sm_90a")
    assert found.defines == {"A": "1", "B": "(x<<2)"}
    assert found.tunables == {"T": ("8", "-4", "1.5", "yes")}


def test_a_step_its_expectations_and_flags() -> None:
    found = parse(
        f"{ARCH}//!KERNEL step 4b  tiles of 96 keys\n//!KERNEL flags nvcc --fmad=false --maxrregcount=64\n"
        "//!KERNEL flags nvcc -O1\n//!KERNEL expect m=*,k=[12] 80-120us@L4\n//!KERNEL expect * 2.5TFLOP/s/SM@H100\n")
    assert found.step == (4, "b", "tiles of 96 keys")
    assert str(found.step) == "4b tiles of 96 keys"
    assert found.flags == ("--fmad=false", "--maxrregcount=64", "-O1")
    assert found.expect == ("m=*,k=[12] 80-120us@L4", "* 2.5TFLOP/s/SM@H100")
    for language, line in (("hip", "clang -ffp-contract=off"), ("cpu", "c++ -ffast-math")):
        text = f"//!KERNEL arch gfx942\n//!KERNEL flags {line}\n" if language == "hip" else f"//!KERNEL flags {line}\n"
        assert parse(text, language).flags == (line.split()[1],)


def test_steps_sort_by_number_and_letter_and_before_what_is_none() -> None:
    plain = KernelSource(Path("k.cu"), Path(), "p", "k", "cuda", "")
    steps = [replace(plain, variant=text, step=parse(f"{ARCH}//!KERNEL step {text} x\n").step)
             for text in ("10", "4b", "4", "2")]
    assert [source.variant for source in sorted([plain, *steps], key=by_step)] == ["2", "4", "4b", "10", "k"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no '//!KERNEL arch"),
        ("// x\n//!KERNEL\n", 2, "unknown directive"),
        ("//!KERNEL sumary x\n", 1, "unknown directive '//!KERNEL sumary x'"),
        ("//!KERNELsummary x\n", 1, "unknown directive"),
        ("//!KERNEL summary\n", 1, "malformed"),
        ("//!KERNEL summary a\n//!KERNEL summary b\n", 2, "second summary"),
        ("//!KERNEL arch gfx942\n", 1, "no cuda architecture"),
        ("//!KERNEL arch sm_90a sm_90a\n", 1, "twice"),
        (ARCH + ARCH, 2, "second arch"),
        ("//!KERNEL define A\n", 1, "malformed"),
        ("//!KERNEL step four\n", 1, "malformed"),
        ("//!KERNEL step 4\n", 1, "malformed"),
        ("//!KERNEL step 1 a\n//!KERNEL step 2 b\n", 2, "second step"),
        ("//!KERNEL expect * 80-120\n", 1, "malformed"),
        ("//!KERNEL expect 80-120us@L4\n", 1, "malformed"),
        ("//!KERNEL flags nvcc\n", 1, "malformed"),
        ("//!KERNEL flags clang -O2\n", 1, "flags of 'nvcc'"),
        ("//!KERNEL flags nvcc -DX=1\n", 1, "no flag that a kernel may set"),
        ("//!KERNEL flags nvcc --fmad=false;id\n", 1, "no flag that a kernel may set"),
        ("//!KERNEL define A=\n", 1, "malformed"),
        ("//!KERNEL define 1A=2\n", 1, "malformed"),
        ("//!KERNEL define A=1 2\n", 1, "malformed"),
        ("//!KERNEL define A=1\n//!KERNEL tune A=1,2\n", 2, "A is defined twice"),
        ("//!KERNEL tune A=1,,2\n", 1, "malformed"),
        ("//!KERNEL tune A=1,1\n", 1, "value of A occurs twice"),
        (ARCH + "int x;\n//!KERNEL define A=1\n", 3, "leading // comment block"),
        (ARCH + "/*\n//!KERNEL define A=1\n*/\n", 3, "leading // comment block"),
        (ARCH + "  //!KERNEL define A=1\n", 2, "must start its line"),
    ],
)
def test_a_bad_directive_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SourceError, match=r"k\.cu:") as caught:
        parse(text)
    assert caught.value.line == line
    assert words in str(caught.value)


def test_host_kernels_need_no_arch() -> None:
    assert parse("int x;", "cpu").arches == ()


PIECES = st.sampled_from(["//!KERNEL", " ", "summary", "arch", "sm_90a", "define", "tune", "A=1", "A=1,2", "=", ",",
                          "\n", "//", "/*", "*/", "int x;", "\r\n", "\t", "é", "\x0c", "\u2028"])


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join)),
       st.sampled_from(["cuda", "hip", "cpu"]))
def test_any_text_is_directives_or_a_source_error(text: str, language: str) -> None:
    try:
        found = parse(text, language)
    except SourceError as error:
        line = error.line
    else:
        line = 1
        assert all(values for values in found.tunables.values())
        assert not set(found.tunables) & set(found.defines)
    assert 1 <= line <= text.count("\n") + 1


def test_a_kernel_knows_its_place(checkout: Path) -> None:
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    assert (source.problem, source.variant, source.language, source.name) == ("scale", "plain", "cuda", "scale/plain")
    assert source.arches == ("sm_89", "sm_90a")
    assert source.signature().symbol == "scale"
    assert [folder.relative_to(checkout).as_posix() for folder in source.include_dirs] == [
        "problems/scale", "kernels/cuda", "kernels/common"]


def test_files_that_are_no_kernels_are_refused(checkout: Path) -> None:
    with pytest.raises(SourceError, match=r"suffixes are \.cu, \.hip, \.cpp"):
        KernelSource.read(checkout / "kernels/cuda/ptx/lane.h", checkout)
    misplaced = checkout / "kernels/cuda/scale/x.hip"
    misplaced.write_text("//!KERNEL arch gfx942\n")
    with pytest.raises(SourceError, match="belongs below kernels/hip/"):
        KernelSource.read(misplaced, checkout)
    with pytest.raises(SourceError, match="cannot be read"):
        KernelSource.read(checkout / "kernels/cuda/scale/none.cu", checkout)


def test_discovery_finds_kernels_and_no_headers(checkout: Path) -> None:
    found = [path.relative_to(checkout).as_posix() for path in kernels(checkout)]
    assert found == ["kernels/cpu/scale/plain.cpp", "kernels/cuda/scale/plain.cu", "kernels/hip/scale/features.hip",
                     "kernels/hip/scale/plain.hip"]
    assert [path.name for path in kernels(checkout, "hip", "scale")] == ["features.hip", "plain.hip"]
    assert kernels(checkout, problem="none") == []
    assert kernels(checkout / "nowhere") == []


def test_tunables_default_to_their_first_value_and_take_listed_ones_only(checkout: Path) -> None:
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    assert source.resolve() == {"THREADS": "256"}
    assert source.resolve({"THREADS": 128, "EXTRA": "x"}) == {"EXTRA": "x", "THREADS": "128"}
    with pytest.raises(SourceError, match="THREADS is one of 256, 128, not 64"):
        source.resolve({"THREADS": 64})
