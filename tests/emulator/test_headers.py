# SPDX-License-Identifier: MIT
"""``warpwave-hipcc`` reads HIP's headers precompiled where that changes nothing but the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends import _llvm, _precompiled, rocm
from backends.emulator import headers, hipcc
from backends.errors import ToolchainMissing

pytestmark = pytest.mark.toolchain("rocm")
_SOURCE = "#include <cstdio>\n#include <hip/hip_runtime.h>\n__global__ void store(int *to) { *to = 1; }\n"


@pytest.fixture
def parts() -> _llvm.Llvm:
    try:
        found = rocm.find()
    except ToolchainMissing as error:
        pytest.skip(str(error))
    if not isinstance(found, _llvm.Llvm):
        pytest.skip("no plain clang that compiles HIP")
    return found


@pytest.mark.slow
def test_the_second_program_reads_them_and_has_the_same_bits(
    parts: _llvm.Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path / "cache"))
    read: list[bool] = []
    quicker = headers.quicker
    monkeypatch.setattr(headers, "quicker", lambda *words: read.append((step := quicker(*words)) is not None) or step)
    (source := tmp_path / "store.hip").write_text(_SOURCE)
    made = []
    for number in range(2):
        out = tmp_path / f"{number}.o"
        assert hipcc.main(["-c", "-O1", f"-I{tmp_path}", str(source), "-o", str(out)]) == 0
        made.append(out.read_bytes())
    assert made[0] == made[1]
    assert sum(read) == 2, "the device's and the host's of the second"
    assert len(list((tmp_path / "cache" / "binaries").rglob(_precompiled.NAME))) == 2


class Precompiled:
    """Which header the host's half of a source would read, if any."""

    def __init__(self, parts: _llvm.Llvm, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self._parts, self._folder, self._asked = parts, folder, list[list[str]]()
        monkeypatch.setattr(_precompiled, "find", lambda command, *_: self._asked.append(command) or folder / "made")

    def __call__(self, text: str, *own: str) -> str:
        (source := self._folder / "source.hip").write_text(text)
        step = self._parts.steps("gfx942", own, str(source), self._folder / "out.so")[3]
        quick = headers.quicker(self._parts, step, source, own, [], [])
        if quick is None:
            return ""
        assert str(self._folder / "made") in quick
        return Path(self._asked[-1][-1]).name


@pytest.fixture
def precompiled(parts: _llvm.Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Precompiled:
    return Precompiled(parts, tmp_path, monkeypatch)


def test_the_runtime_where_nothing_before_it_changes_it(precompiled: Precompiled) -> None:
    assert precompiled(_SOURCE, "-O3") == "hip_runtime.h"
    assert precompiled("#define __HIP_DISABLE_CPP_FUNCTIONS__\n" + _SOURCE) == "__clang_hip_runtime_wrapper.h"


def test_own_folders_and_forced_headers(precompiled: Precompiled, tmp_path: Path) -> None:
    (own := tmp_path / "own").mkdir()
    (own / "reference.h").touch()
    assert precompiled(_SOURCE, f"-I{own}", "-isystem", str(own)) == "hip_runtime.h"
    assert precompiled(_SOURCE, "-include", "reference.h") == ""
    (own / "complex.h").touch()
    assert precompiled(_SOURCE, f"-I{own}") == "", "it hides the system's"
    assert precompiled(_SOURCE, "-I", str(own)) == ""
    assert precompiled(_SOURCE) == "hip_runtime.h"


def test_commands_that_are_shown_read_none_and_others_do_without(
    parts: _llvm.Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(headers, "quicker", lambda *words: asked.append(str(words[2])) or ["false"])
    (source := tmp_path / "store.hip").write_text("int nothing_of_hip;\n")
    for words, times in (["-v"], 0), ([], 4):      # constants, the device's code and its link, the host's code
        out = tmp_path / f"{times}.o"
        assert hipcc.main([*words, "-c", "-O1", str(source), "-o", str(out)]) == 0
        assert out.is_file()
        assert asked == [str(source)] * times
