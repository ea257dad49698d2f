# SPDX-License-Identifier: MIT
"""Fixtures of the HIP kernel tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import backends
from backends.emulator import build
from backends.errors import ToolchainMissing
from scoring.ipc.emulator import Emulator
from tests.kernels.hip import emulated
from tests.problems.folders import signature

Builder = Callable[..., emulated.Kernel]


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """The emulated MI300X with all checks on; skips where it or kernels for it cannot be built."""
    try:
        backends.get("rocm").compiler()
        found = Emulator(str(build.library()), emulated.OPTIONS)
    except (ToolchainMissing, OSError) as error:
        pytest.skip(str(error))
    found.take_findings()
    yield found
    for option, value in emulated.DEFAULTS.items():
        found.set(option, value)


@pytest.fixture(scope="module")
def hip_kernel(emulator: Emulator) -> Builder:
    """``hip_kernel(problem, variant, **defines)``: a kernel file of a problem."""
    def get(problem: str, variant: str = "mfma", **defines: int) -> emulated.Kernel:
        file = emulated.ROOT / f"kernels/hip/{problem}/{variant}.hip"
        abi = signature(problem)
        return emulated.Kernel(emulator, emulated.compiled(file, problem, tuple(sorted(defines.items()))), abi.symbol,
                               {param.name: param.ctype for param in abi.params})

    return get
