# SPDX-License-Identifier: MIT
"""Every file that goes for the host, the report channel or a way around both, judged on the CPU: it gets nothing."""

from __future__ import annotations

import pytest

from tests.redteam.entries import entries, sample

GREEDY = [e for e in entries() if not e.honest and e.runs_on("cpu") and e.kind in ("host", "channel", "commands")]
QUICK = sample(GREEDY, 2)       # a judgement takes seconds: `make sweep` has all of them


@pytest.mark.parametrize("entry", [
    pytest.param(entry, id=entry.name, marks=() if entry.name in QUICK else pytest.mark.slow) for entry in GREEDY])
def test_the_host_and_the_channel_hold(judged, entry):
    judged(entry)
