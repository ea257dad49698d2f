# SPDX-License-Identifier: MIT
"""The compile cache with a compiler under observation: one that counts its calls and waits when told to."""

from __future__ import annotations

import ctypes
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends._cache import Cache
from backends.cpu import CpuBackend
from backends.errors import CompileError
from backends.source import KernelSource

Read = Callable[[str], KernelSource]
pytestmark = pytest.mark.toolchain


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A C++ compiler that notes each call in ``calls`` and waits while ``wait`` exists; set as CXX."""
    real = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    if real is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path / "slow"
    folder.mkdir()
    script = folder / "cxx"
    script.write_text(
        '#!/bin/sh\necho "$*" >> "${0%/*}/calls"\nfor last; do :; done\n'
        'case "$*" in *-o*) while [ -e "${0%/*}/wait" ]; do echo half > "$last"; sleep 0.05; done;; esac\n'
        f'exec {shlex.quote(real)} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_hit_starts_no_compiler_at_all(slow: Path, source_of: Read) -> None:
    first = CpuBackend().compile(source_of("cpu"), CpuBackend().target())
    seen = calls(slow)
    assert sum("-o" in call.split() for call in seen) == 1
    assert "--version" in seen
    assert CpuBackend().compile(source_of("cpu"), CpuBackend().target()).path == first.path
    assert calls(slow) == seen


def test_a_compiler_that_changes_is_asked_again(slow: Path, source_of: Read) -> None:
    CpuBackend().compile(source_of("cpu"), CpuBackend().target())
    seen = len(calls(slow))
    (slow / "cxx").write_text((slow / "cxx").read_text() + "# newer\n")
    CpuBackend().compile(source_of("cpu"), CpuBackend().target())
    assert "--version" in calls(slow)[seen:]


def test_a_compiler_that_hangs_is_ended(slow: Path, source_of: Read, tmp_path: Path) -> None:
    (slow / "wait").touch()
    started = time.monotonic()
    with pytest.raises(CompileError, match="not compiled after 1 s"):
        CpuBackend().compile(source_of("cpu"), CpuBackend().target(), timeout=1.0)
    assert time.monotonic() - started < 30
    assert not list((tmp_path / "cache" / "building").iterdir())


CHILD = """
import sys
from pathlib import Path
from backends.cpu import BACKEND
from backends.source import KernelSource
root = Path(sys.argv[1])
binary = BACKEND.compile(KernelSource.read(root / "kernels/cpu/scale/plain.cpp", root), BACKEND.target())
print(binary.path, binary.path.stat().st_size, flush=True)
"""


def test_kill_minus_nine_in_the_middle_leaves_no_half_entry(
    slow: Path, checkout: Path, source_of: Read, tmp_path: Path
) -> None:
    (slow / "wait").touch()
    victim = subprocess.Popen([sys.executable, "-c", CHILD, str(checkout)])
    deadline = time.monotonic() + 60
    building = tmp_path / "cache" / "building"
    while not list(building.glob("*/kernel.so")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(building.glob("*/kernel.so"))        # half written now
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    (slow / "wait").unlink()                          # the orphaned compiler goes on, in a folder nobody will look at
    cache = Cache(tmp_path / "cache")
    backend, source = CpuBackend(), source_of("cpu")
    assert cache.get(backend.key(source, backend.target())) is None
    binary = backend.compile(source, backend.target())
    assert not binary.cached
    assert source.signature().bind(ctypes.CDLL(str(binary.path)))(None, None, 0, 0.0, None, 0, None) == -1
    deadline = time.monotonic() + 60
    while list(building.glob("*")) and time.monotonic() < deadline:      # until the orphan lets go of its lock
        backend.compile(source, backend.target(), {"EXTRA": int(time.monotonic() * 1000)})
    assert not list(building.glob("*"))


def test_many_processes_compile_the_same_kernel(slow: Path, checkout: Path, source_of: Read) -> None:
    children = [subprocess.Popen([sys.executable, "-c", CHILD, str(checkout)], stdout=subprocess.PIPE, text=True)
                for _ in range(4)]
    outputs = {child.communicate(timeout=120)[0] for child in children}
    assert [child.returncode for child in children] == [0] * 4
    assert len(outputs) == 1                          # one path, one size
    assert CpuBackend().compile(source_of("cpu"), CpuBackend().target()).cached


def test_many_threads_compile_the_same_kernel(slow: Path, source_of: Read) -> None:
    backend, source = CpuBackend(), source_of("cpu")
    with ThreadPoolExecutor(4) as pool:
        binaries = list(pool.map(lambda _: backend.compile(source, backend.target()), range(8)))
    assert len({(binary.path, binary.digest) for binary in binaries}) == 1
    assert backend.compile(source, backend.target()).cached


def test_a_damaged_library_is_built_again(slow: Path, source_of: Read) -> None:
    backend, source = CpuBackend(), source_of("cpu")
    first = backend.compile(source, backend.target())
    first.path.write_bytes(first.path.read_bytes()[:-1] + b"?")
    second = backend.compile(source, backend.target())
    assert not second.cached
    assert second.path == first.path
    assert backend.compile(source, backend.target()).cached


def test_a_header_edited_while_the_compiler_runs_is_never_filed_under_the_old_address(
    slow: Path, source_of: Read, checkout: Path, tmp_path: Path
) -> None:
    editor = subprocess.Popen(["sh", "-c", f"""
        while ! ls {shlex.quote(str(tmp_path))}/cache/building/*/kernel.so 2>/dev/null; do sleep 0.02; done
        echo '#define CHANGED 1' >> {shlex.quote(str(checkout))}/kernels/common/status.h
        rm {shlex.quote(str(slow))}/wait"""], stdout=subprocess.DEVNULL)
    backend, source = CpuBackend(), source_of("cpu")
    before = backend.key(source, backend.target())
    (slow / "wait").touch()
    with editor:
        binary = backend.compile(source, backend.target())
    assert binary.digest != before
    assert Cache().get(before) is None
    assert Cache().get(backend.key(source, backend.target())) is not None
