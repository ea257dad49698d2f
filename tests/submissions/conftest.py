# SPDX-License-Identifier: MIT
"""Shared by the submission tests: a small checkout of its own, and what this machine can compile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backends.source import KernelSource

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TREE = HERE / "tree"


def tiny(language: str, root: Path = TREE) -> KernelSource:
    """The tests' kernel in one language."""
    suffix = {"cuda": ".cu", "hip": ".hip", "cpu": ".cpp"}[language]
    return KernelSource.read(root / "kernels" / language / "axpy" / f"tiny{suffix}", root)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the small checkout to change."""
    return Path(shutil.copytree(TREE, tmp_path / "tree"))


@pytest.fixture
def host_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch can build host extensions here, in a folder of the test's own; skips where it cannot."""
    for program in ("ninja", "g++"):
        if shutil.which(program) is None:
            pytest.skip(f"torch's load_inline needs {program}, which is not on PATH")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
