# SPDX-License-Identifier: MIT
"""Fixtures of the HIP kernel tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.kernels.hip import host

Builder = Callable[..., host.HostKernel]


@pytest.fixture(scope="session")
def host_kernel(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """``host_kernel(problem, **defines)``: the mfma variant of a problem on the host, compiled once per session."""
    if host.compiler() is None:
        pytest.skip("no C++ compiler for the host: install g++ or the ziglang wheel")
    built: dict[tuple[str, frozenset[tuple[str, int]]], host.HostKernel] = {}
    folder: Path = tmp_path_factory.mktemp("hip-host")

    def get(problem: str, **defines: int) -> host.HostKernel:
        key = (problem, frozenset(_items(defines)))
        if key not in built:
            library = host.build(problem, folder / f"{problem}-{len(built)}.so", defines)
            built[key] = host.HostKernel(library, problem)
        return built[key]

    return get


def _items(defines: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(defines.items())
