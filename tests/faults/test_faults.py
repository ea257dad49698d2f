# SPDX-License-Identifier: MIT
"""The lists of planted faults fit the tree; every fault is noticed (slow)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.__main__ import FAULTS, ROOT
from tests.faults.explained import EXPLAINED
from tests.faults.planting import stale


def test_every_snippet_stands_where_its_fault_says() -> None:
    assert stale(ROOT, FAULTS) == []
    assert {test for fault in FAULTS for test in fault.tests if not (ROOT / test).is_file()} == set()
    assert set(EXPLAINED) <= {(fault.file, fault.name) for fault in FAULTS}


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_fault_is_noticed_or_explained() -> None:
    """In a process of its own: a fork of pytest's waits for ever for the watchdog thread of pytest's faulthandler."""
    assert subprocess.run([sys.executable, "-m", "tests.faults"], cwd=ROOT, check=False).returncode == 0
