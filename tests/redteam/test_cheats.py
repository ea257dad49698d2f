# SPDX-License-Identifier: MIT
"""Every cheat on answers and time, judged on the CPU: rejected, or passed at an honest time."""

from __future__ import annotations

import pytest

from tests.redteam.entries import entries

CHEATS = [e for e in entries() if not e.honest and e.runs_on("cpu") and e.kind not in ("host", "channel", "commands")]


@pytest.mark.parametrize("entry", CHEATS, ids=lambda entry: entry.name)
def test_no_cheat_is_rewarded(judged, entry):
    judged(entry)
