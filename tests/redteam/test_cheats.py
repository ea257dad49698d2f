# SPDX-License-Identifier: MIT
"""Every cheat on answers and time, judged on the CPU: rejected, or passed at an honest time."""

from __future__ import annotations

import pytest

from tests.redteam.entries import entries, sample

CHEATS = [e for e in entries() if not e.honest and e.runs_on("cpu") and e.kind not in ("host", "channel", "commands")]
QUICK = sample(CHEATS, 1)       # a judgement takes seconds: `make sweep` has all of them


@pytest.mark.parametrize("entry", [
    pytest.param(entry, id=entry.name, marks=() if entry.name in QUICK else pytest.mark.slow) for entry in CHEATS])
def test_no_cheat_is_rewarded(judged, entry):
    judged(entry)
