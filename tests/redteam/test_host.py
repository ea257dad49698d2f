# SPDX-License-Identifier: MIT
"""Every file that goes for the host, the report channel or a way around both, judged on the CPU: it gets nothing."""

from __future__ import annotations

import pytest

from tests.redteam.entries import entries

GREEDY = [e for e in entries() if not e.honest and e.runs_on("cpu") and e.kind in ("host", "channel", "commands")]


@pytest.mark.parametrize("entry", GREEDY, ids=lambda entry: entry.name)
def test_the_host_and_the_channel_hold(judged, entry):
    judged(entry)
