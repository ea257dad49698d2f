# SPDX-License-Identifier: MIT
"""``python -m backends``: what a kernel author types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backends import __main__ as command
from backends.toolchain import CompilingBackend


@pytest.fixture(autouse=True)
def _in_the_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "HOME", checkout)


@pytest.mark.toolchain
def test_compile_prints_what_a_kernel_uses(
    checkout: Path, backend_of: Callable[[str], CompilingBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    backend_of("rocm")
    assert command.main(["compile", str(checkout / "kernels/hip/scale/plain.hip"), "--gpu", "MI300"]) == 0
    output = capsys.readouterr().out
    assert "(MI300, gfx942, " in output
    assert "scale_kernel<256>: " in output
    assert "1024 B shared, 0 B spilled, 0 B scratch, up to 256 threads, occupancy ≤ 100%" in output


@pytest.mark.toolchain
def test_compile_shows_a_refusal_without_a_traceback(
    checkout: Path, backend_of: Callable[[str], CompilingBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    backend_of("cpu")
    path = checkout / "kernels/cpu/scale/bad.cpp"
    path.write_text("int x = nothing;\n")
    assert command.main(["compile", str(path)]) == 1
    assert "error: kernels/cpu/scale/bad.cpp:1: error: " in capsys.readouterr().err


@pytest.mark.toolchain
def test_defines_and_commands(
    checkout: Path, backend_of: Callable[[str], CompilingBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    backend_of("cpu")
    file = str(checkout / "kernels/cpu/scale/plain.cpp")
    assert command.main(["compile", file, "-D", "BIAS=100", "-D", "X=1", "--command"]) == 0
    assert "-DBIAS=100 -DX=1 kernels/cpu/scale/plain.cpp" in capsys.readouterr().out
    assert command.main(["compile", file, "-D", "BIAS=3"]) == 2
    assert "BIAS is one of 0, 100, not 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compile", "README.md"], "suffixes are .cu, .hip, .cpp"),
        (["compile", "kernels/cuda/scale/none.cu"], "cannot be read"),
        (["compile", "kernels/cpu/scale/plain.cpp", "-D", "BIAS"], "-D BIAS: NAME=VALUE is expected"),
        (["compile", "kernels/cpu/scale/plain.cpp", "-D", "3=4"], "-D 3=4: NAME=VALUE is expected"),
        (["compile", "kernels/cuda/scale/plain.cu", "--gpu", "B200"], "unknown GPU or arch 'B200'"),
    ],
)
def test_a_users_mistake_is_one_line(
    checkout: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert command.main([arguments[0], str(checkout / arguments[1]), *arguments[2:]]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_probe_lists_every_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["probe"]) == 0
    output = capsys.readouterr().out
    assert [line.partition(":")[0] for line in output.splitlines() if not line.startswith(" ")] == [
        "cpu", "cuda", "rocm"]
