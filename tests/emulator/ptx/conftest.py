# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from tests.emulator.ptx.driver import Cuda


@pytest.fixture(scope="session")
def library() -> Cuda:
    return Cuda()


@pytest.fixture
def cuda(library: Cuda) -> Cuda:
    """An emulated H200, two threads, copies as late as they may be."""
    library.set(gpu="H200", threads=2, schedule="late")
    library.taken("message"), library.taken("findings")
    return library
