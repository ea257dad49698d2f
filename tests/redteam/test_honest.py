# SPDX-License-Identifier: MIT
"""Every honest file, judged on the CPU: it passes, however much it looks like a cheat."""

from __future__ import annotations

import pytest

from tests.redteam.entries import entries, sample

HONEST = [e for e in entries() if e.honest and e.runs_on("cpu")]
QUICK = sample(HONEST, 5)       # a judgement takes seconds: `make sweep` has all of them


@pytest.mark.parametrize("entry", [
    pytest.param(entry, id=entry.name, marks=() if entry.name in QUICK else pytest.mark.slow) for entry in HONEST])
def test_no_honest_file_is_rejected(judged, entry):
    judged(entry)
