# SPDX-License-Identifier: MIT
"""The emulator's library, built once, and what it says it can do."""

from __future__ import annotations

import pytest

from backends.emulator import build
from tests.emulator.isa.wave import Emulator
from tests.emulator.runtime import built


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    return Emulator(str(built(build.library)))


@pytest.fixture(scope="session")
def implemented(emulator: Emulator) -> set[str]:
    return {row["name"] for row in emulator.instructions()}
