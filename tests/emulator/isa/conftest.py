# SPDX-License-Identifier: MIT
"""The emulator's library, built once, and what it says it can do."""

from __future__ import annotations

import pytest

from tests.emulator.isa.wave import Emulator


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    from backends.base import BackendError
    from backends.emulator import build
    try:
        path = build.library()
    except BackendError as error:
        pytest.skip(f"the emulator cannot be built here: {error}")
    return Emulator(str(path))


@pytest.fixture(scope="session")
def implemented(emulator: Emulator) -> set[str]:
    return {row["name"] for row in emulator.instructions()}
