# SPDX-License-Identifier: MIT
"""Every honest file, judged on the CPU: it passes, however much it looks like a cheat."""

from __future__ import annotations

import pytest

from tests.redteam.entries import entries

HONEST = [e for e in entries() if e.honest and e.runs_on("cpu")]


@pytest.mark.parametrize("entry", HONEST, ids=lambda entry: entry.name)
def test_no_honest_file_is_rejected(judged, entry):
    judged(entry)
