# SPDX-License-Identifier: MIT
"""Which kinds of isolation a test runs in, of those that work on this machine, by the name of its argument."""

from __future__ import annotations

import pytest

from tests.scoring.sandbox import cell

KINDS = {
    "tier": lambda tier: True,
    "walled": lambda tier: tier.name != "process",       # files and system calls are restricted
    "lent": lambda tier: tier.own_user,                  # a user of its own
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, wanted in KINDS.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, [tier for tier in cell.available() if wanted(tier)], ids=cell.name)
