# SPDX-License-Identifier: MIT
"""The compile cache of all tests of the scorer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, and empty when they start: what many of them run (the toy problem's kernels, the chain's library) is
    compiled once. Workers of pytest-xdist share it, since it is made for many processes (tests/backends/test_cache.py).
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache-of-the-scorer"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
