# SPDX-License-Identifier: MIT
"""One judging process per module of tests, and the record of what became of every file (shown by tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.redteam.entries import Entry, Outcome
from tests.redteam.suite import Suite


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    with Suite("cpu") as suite:
        yield suite


@pytest.fixture
def judged(suite: Suite, record_property: Callable[[str, object], None]) -> Callable[[Entry], None]:
    """Judge one file; fails if a cheat was rewarded or an honest file rejected, skips what cannot be run here."""
    def judge(entry: Entry) -> None:
        result = suite.run(entry)
        record_property("redteam", ["honest" if entry.honest else "cheat", str(result.outcome)])
        if result.outcome is Outcome.NOT_RUN:
            pytest.skip(result.why)
        assert not result.failed, "\n".join(str(trial) for trial in result.trials)

    return judge
