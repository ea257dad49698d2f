# SPDX-License-Identifier: MIT
"""A small checkout of its own, so that no test depends on the project's kernels, and compilers where they are here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import backends
from backends.errors import ToolchainMissing
from backends.source import KernelSource
from backends.toolchain import CompilingBackend

REPOSITORY = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
FILES = {
    "cuda": "kernels/cuda/scale/plain.cu",
    "rocm": "kernels/hip/scale/plain.hip",
    "cpu": "kernels/cpu/scale/plain.cpp",
}


@pytest.fixture(scope="session")
def tool_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for what compilers say about themselves, so that they are asked once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(tool_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tool_memory))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A writable checkout with one problem, ``scale``, and its kernels."""
    root = tmp_path / "checkout"
    shutil.copytree(DATA / "checkout", root)
    shutil.copytree(REPOSITORY / "kernels" / "common", root / "kernels" / "common")
    return root


@pytest.fixture
def backend_of() -> Callable[[str], CompilingBackend]:
    """The backend of that name; skips where its compiler is not installed."""

    def get(name: str) -> CompilingBackend:
        backend = backends.get(name)
        assert isinstance(backend, CompilingBackend)
        try:
            backend.compiler()
        except ToolchainMissing as error:
            pytest.skip(str(error))
        return backend

    return get


@pytest.fixture
def source_of(checkout: Path) -> Callable[[str], KernelSource]:
    """The plain kernel of a backend in the small checkout."""
    return lambda name: KernelSource.read(checkout / FILES[name], checkout)
