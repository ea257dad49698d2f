# SPDX-License-Identifier: MIT
"""The emulator with counters on, for the tests of what it counts and models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.emulator import build
from tests.emulator import assembled, runtime


@pytest.fixture(scope="module")
def hip() -> Iterator[runtime.Hip]:
    hip = runtime.Hip(runtime.built(build.library))
    assembled.option(hip, "counters", 1)
    yield hip
    assembled.option(hip, "counters", 0)


@pytest.fixture
def run(hip: runtime.Hip, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Assembles and launches a kernel; its counters."""

    def run(body: str, *buffers: np.ndarray, grid: int = 1, block: int = 64, lds: int = 0,
            vgprs: int = 64) -> dict[str, Any]:
        binary = assembled.code_object(body, tmp_path, len(buffers), lds, vgprs)
        assembled.take_counters(hip)
        assembled.launch(hip, binary, grid, block, buffers)
        (counters,) = assembled.take_counters(hip)
        return counters

    return run
